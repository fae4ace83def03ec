"""The name of a user whom the machine does not know."""

import os
from pathlib import Path

from node import folders
from trainyard.access import user


def test_a_user_without_an_entry_has_a_name(monkeypatch):  # F58
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 471147)
    assert user.name() == "uid-471147"
    assert folders.refusal(Path("/srv/trainyard")) == ""
