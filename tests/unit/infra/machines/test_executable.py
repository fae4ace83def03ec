"""Copies of programs on another machine; here, this one's shell stands in for it."""

import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.machines import executable
from infra.machines import host_provider as presence
from infra.machines.executable import ExecutableProvider
from trainyard.access.ssh import SshError


class Machine:
    """Runs commands and takes files, in this machine's place."""

    def __init__(self):
        self.architecture = platform.machine()
        self.copies = 0
        self.away = False

    def run(self, _connection, command, *, seconds):
        if self.away:
            raise SshError("cannot be reached")
        if command == "uname -m":
            return f"{self.architecture}\n"
        done = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=seconds, check=True
        )
        return done.stdout

    def copy(self, _connection, source, destination, *, mode):
        self.copies += 1
        shutil.copyfile(source, destination)
        subprocess.run(["chmod", f"{mode:o}", destination], check=True)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(executable, "run", made.run)
    monkeypatch.setattr(executable, "copy", made.copy)
    return made


@pytest.fixture
def provider():
    provider = ExecutableProvider()
    provider.configure(SimpleNamespace(config={}))
    return provider


@pytest.fixture
def props(tmp_path):
    source = tmp_path / "minio-RELEASE.2025-10-15"
    source.write_bytes(b"\0" * 3_000_000 + b"program")
    return {
        "source": str(source),
        "path": str(tmp_path / "there $(touch canary)" / "bin" / "minio"),
        "host": {"host": "192.0.2.4", "user": "ada", "hostKey": "ssh-ed25519 A", "port": 22},
        "machine": "ada@192.0.2.4",
    }


def test_a_program_is_copied_once(machine, provider, props, tmp_path):  # F39
    made = provider.create(props)
    assert (made.id, made.outs) == (props["path"], props)
    copied = tmp_path / "there $(touch canary)" / "bin" / "minio"
    assert copied.read_bytes()[-7:] == b"program"
    assert copied.stat().st_mode & 0o777 == 0o755
    provider.create(props)
    assert machine.copies == 1
    assert not list(tmp_path.rglob("canary"))


def test_a_copy_that_was_changed_is_not_there(machine, provider, props, tmp_path):  # F8
    made = provider.create(props)
    assert provider.read(made.id, props).id == made.id
    with Path(props["path"]).open("ab") as file:
        file.write(b"more")
    assert provider.read(made.id, props).id == ""
    provider.create(props)
    assert machine.copies == 2
    provider.delete(made.id, props)
    provider.delete(made.id, props)
    assert provider.read(made.id, props).id == ""


def test_a_program_for_other_machines_is_refused(machine, provider, props):
    machine.architecture = "riscv64"
    with pytest.raises(
        SshError,
        match=r"ada@192.0.2.4 is riscv64, and minio-.*run `up` on a machine that is riscv64",
    ):
        provider.create(props)
    assert machine.copies == 0


def test_another_way_to_the_machine_is_the_same_copy(provider, props):
    news = {**props, "host": props["host"] | {"host": "10.0.0.4"}}
    assert provider.diff("x", props, news).replaces == []
    for key in ("machine", "path"):
        assert provider.diff("x", props, {**props, key: "other"}).replaces == [key]


def test_a_machine_that_is_gone_has_no_copy(machine, provider, props, monkeypatch):
    provider.create(props)
    machine.away = True
    with pytest.raises(SshError):  # unknown: it may be back tomorrow
        provider.read(props["path"], props)
    with pytest.raises(SshError):
        provider.delete(props["path"], props)
    monkeypatch.setattr(presence, "is_gone", lambda host, config: True)
    assert provider.read(props["path"], props).id == ""
    provider.delete(props["path"], props)
