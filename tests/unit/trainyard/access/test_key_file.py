"""The file of a private key is used only if nobody else could read or replace it."""

import os
import re
import subprocess

import pytest

from trainyard.access import key_file
from trainyard.access.key_file import KeyFileError, MissingKeyFileError


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_a_key_that_others_can_use_is_refused(tmp_path, mode):  # F38
    path = tmp_path / "key"
    path.write_text("key")
    path.chmod(mode)
    said = re.escape(f"(mode {mode:04o}, at most 0600): chmod 600 {path}")
    with pytest.raises(KeyFileError, match=said):
        key_file.read(path, "")
    for of_its_user in (0o400, mode & 0o700):
        path.chmod(of_its_user)
        assert key_file.read(path, "") == "key"


def test_what_is_no_file_or_no_text_is_no_key(tmp_path):  # F38
    path, link = tmp_path / "key", tmp_path / "link"
    with pytest.raises(MissingKeyFileError, match=rf"{path} \(No such file.*\): copy it"):
        key_file.read(path, "copy it")
    path.write_bytes(b"\xff\xfe\x00")
    path.chmod(0o600)
    link.symlink_to(path)
    for place, why in ((path, "not text"), (link, "it is a symbolic link"), (tmp_path, "Is a dir")):
        with pytest.raises(KeyFileError, match=rf"cannot read .* key file {place} \({why}"):
            key_file.read(place, "")


def test_a_pipe_which_somebody_else_may_feed_is_no_key(tmp_path):  # F38
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with subprocess.Popen(["/bin/sh", "-c", f"exec echo key > {pipe}"]) as feeding:
        with pytest.raises(KeyFileError, match=f"key file {pipe} is not a file"):
            key_file.read(pipe, "")
        feeding.wait(10)
