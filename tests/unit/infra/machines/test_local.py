"""Finding programs and folders of this machine."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.machines import local


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.24 linux/amd64", (1, 24)),
        ("gibberish", None),
    ],
)
def test_the_version_of_go(bare, put_program, answer, version):
    put_program(bare, "go", f"echo {answer}")
    assert local.go_version() == version


def test_a_go_that_fails_is_no_go(bare, put_program):
    assert local.go_version() is None
    put_program(bare, "go", "exit 1")
    assert local.go_version() is None


def test_runtime_folders_are_short_and_differ_by_stack():
    folders = {local.runtime_folder(stack) for stack in ("dev", "lab", "x" * 100)}
    assert len(folders) == 3
    assert all(len(str(folder)) <= 25 for folder in folders)
    assert all(folder.parent == Path("/var/tmp") for folder in folders)  # F42
    assert local.runtime_folder("dev") in folders


def test_data_and_cache_follow_xdg(bare, monkeypatch):
    assert local.data_folder("dev") == bare.parent / "data/trainyard/dev"
    assert local.cache_folder() == bare.parent / "cache/trainyard"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert local.data_folder("dev") == Path.home() / ".local/share/trainyard/dev"


def test_the_machine_is_measured():
    host = local.LocalHost.detect()
    assert host.cpus == len(os.sched_getaffinity(0))
    assert host.memory_mib > 0


@pytest.mark.parametrize(
    ("address", "public"),
    [("8.8.4.4", "8.8.4.4"), ("10.0.0.7", ""), ("192.168.1.7", ""), ("100.64.0.7", "")],
)
def test_the_address_on_the_internet_is_one_that_is_not_translated(monkeypatch, address, public):
    class Socket(socket.socket):
        def connect(self, _: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return address, 40000

    monkeypatch.setattr(socket, "socket", Socket)
    assert local.public_address() == public


def test_a_machine_without_a_network_has_no_public_address(monkeypatch):
    class Socket(socket.socket):
        def connect(self, _: object) -> None:
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", Socket)
    assert local.public_address() == ""


@given(st.text(min_size=1))
@example("x" * 200)
def test_an_owner_fits_a_tag(setting):  # F39
    owner = local.owner(setting)
    assert 0 < len(owner) <= 128  # what the API takes
    assert all(character.isalnum() or character in "@._-" for character in owner)
    assert owner.isascii()


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("netid", "netid"),
        ("Ann.Lee@lab_", "ann-lee-lab"),
        ("42", "42"),
        ("a-very-long-name-of-a-group", "a-very-long-name"),
        ("sixteen-letters--x", "sixteen-letters"),
        ("\u00e4\u00f6/..", ""),
        ("", ""),
    ],
)
def test_an_owner_fits_names(setting, part):  # D4
    assert local.owner_part(setting) == part


def test_the_owner_is_user_and_machine(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "ann lee")
    monkeypatch.setattr("socket.gethostname", lambda: "lab")
    assert local.owner() == "ann-lee@lab"
