import sys
import threading
import time
import types

import pytest

from infra import cancellation


def test_a_wait_ends_when_it_is_canceled():  # F11
    canceled = cancellation.Cancellation()
    canceled.check()
    threading.Timer(0.05, canceled.cancel).start()
    begun = time.monotonic()
    with pytest.raises(cancellation.CanceledError):
        canceled.sleep(60)
    assert time.monotonic() - begun < 10
    with pytest.raises(cancellation.CanceledError):
        canceled.check()


def test_other_main_modules_are_left_alone(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    before = dict(vars(main))
    cancellation.hear_host()
    assert vars(main) == before
