"""Keys that log in to other machines; the rest needs a real sshd."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ssh_keys import new_key
from trainyard.access.ssh import NoKeyError
from trainyard.access.ssh_run import read_key

ROOT = Path(__file__).resolve().parents[4]


def test_what_is_no_key_is_refused(tmp_path):  # F38
    path = tmp_path / "key"
    with pytest.raises(NoKeyError, match=r"No such file.*name the file of a private key"):
        read_key(path)
    for content in (b"", b"ssh-ed25519 AAAA public"):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(NoKeyError, match="is not a readable private key"):
            read_key(path)
    path.unlink()
    assert read_key(new_key(path)) == path.read_text()


def test_a_stack_of_this_machine_loads_no_library_that_it_does_not_need():  # P2
    modules = "infra.places.this_machine.place, cluster.minio_calls, cluster.versitygw_calls"
    modules += ", infra.settings.config, cluster.services, engine.cli, engine.operation"
    slow = {"asyncssh", "boto3", "ruamel.yaml"}
    script = f"import sys, {modules}; sys.exit(len({slow} & {{*sys.modules}}))"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
