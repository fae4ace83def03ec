"""Keys that log in to other machines; the rest needs a real sshd."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ssh_keys import new_key
from trainyard.access.ssh import NoKeyError, SshError
from trainyard.access.ssh_run import read_key

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o777])
def test_a_key_that_others_can_reach_is_refused(tmp_path, mode):  # F38
    path = tmp_path / "key"
    path.write_text("key")
    path.chmod(mode)
    with pytest.raises(NoKeyError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        read_key(path)


def test_what_is_no_key_is_refused(tmp_path):  # F38
    path = tmp_path / "key"
    with pytest.raises(SshError, match=r"No such file.*name the file of a private key"):
        read_key(path)
    for content, fault in (
        (b"", "is not a readable private key"),
        (b"ssh-ed25519 AAAA public", "is not a readable private key"),
        (b"\xff\xfe\x00", "(not text)"),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SshError, match=re.escape(fault)):
            read_key(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(SshError, match="symbolic link"):
        read_key(link)
    with pytest.raises(SshError, match="Is a directory"):
        read_key(tmp_path)


def test_what_is_no_file_is_no_key(tmp_path):  # F38
    """Such as a pipe, which somebody else may feed."""
    key, pipe = tmp_path / "key", tmp_path / "pipe"
    new_key(key)
    assert read_key(key) == key.read_text()
    os.mkfifo(pipe, 0o600)
    with subprocess.Popen(["/bin/sh", "-c", f"exec cat {key} > {pipe}"]) as feeding:
        with pytest.raises(NoKeyError, match="is not a file"):
            read_key(pipe)
        feeding.wait(10)


def test_a_stack_of_this_machine_does_not_load_an_ssh_library():
    modules = "infra.runtimes.this_machine.place, cluster.minio_calls, cluster.versitygw_calls"
    script = f"import sys, {modules}; sys.exit('asyncssh' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
