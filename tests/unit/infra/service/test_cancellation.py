import threading
import time

import pytest

from infra.service import cancellation


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
