"""A program that runs once: what is shown of it, how it is ended, and what a refresh sees."""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from pulumi.dynamic import Config, ConfigureRequest

from infra.machines import once
from infra.machines.once import OnceProvider
from infra.service.cancellation import CanceledError
from node import folders
from node.life import ServiceError

DEADLINE_SECONDS = 60.0
MARK = {"id": "0123abcd", "project": "p", "stack": "s", "by": "ada@here"}
FILL = "echo first; cat files/archive > {folder}/content; echo second; exit {status}"
# What is asked to end needs a moment for what is half done.
SLOW = "trap 'sleep 0.2; echo removed; exit 143' TERM; echo working; while :; do sleep 0.05; done"


@pytest.fixture
def said(monkeypatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(once, "say", lines.append)
    return lines


@pytest.fixture
def provider() -> OnceProvider:
    made = OnceProvider()
    made.configure(ConfigureRequest(config=Config(raw_config={}, project_name="trainyard")))
    return made


@pytest.fixture
def props(tmp_path) -> Callable[..., dict[str, Any]]:
    """Properties of a program that copies an archive into its folder, or does something else."""
    (tmp_path / "archive.zip").write_text("images")
    folders.take(tmp_path / "s", folders.FolderMark(**MARK), "stateDir")

    def build(script: str = "", *, status: int = 0) -> dict[str, Any]:
        folder = tmp_path / "data" / "food11"
        text = script or FILL.format(folder=folder, status=status)
        return {
            "folder": str(tmp_path / "s"),
            "name": "dataset",
            "command": ["/bin/sh", "-c", text],
            "environment": {"MARK": "x"},
            "hostFiles": {"archive": str(tmp_path / "archive.zip")},
            "folders": [str(folder)],
            "mark": MARK,
        }

    return build


def test_it_is_not_run_in_a_folder_of_another_stack(provider, props, tmp_path):  # F46
    other = MARK | {"id": "4567abcd", "by": "bob@there"}
    with pytest.raises(ServiceError, match="belongs to stack s of project p, made by ada@here"):
        provider.create(props() | {"mark": other})
    assert not (tmp_path / "s" / "dataset").exists()
    assert not (tmp_path / "data").exists()


def test_its_lines_are_shown_and_what_it_filled_stays(provider, props, said, tmp_path):
    given = props()
    made = provider.create(given)
    assert said == ["dataset: first", "dataset: second"]
    assert (tmp_path / "data" / "food11" / "content").read_text() == "images"
    assert not (tmp_path / "s" / "dataset").exists()
    assert provider.read(made.id, given).id == "dataset"
    provider.delete(made.id, given)
    assert (tmp_path / "data" / "food11" / "content").exists()


@pytest.mark.parametrize("folder", ["food11", "food11/content"])
def test_a_refresh_sees_what_has_vanished(provider, props, said, tmp_path, folder):
    given = props()
    provider.create(given)
    gone = tmp_path / "data" / folder
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert provider.read("dataset", given).id == ""
    assert said


def test_what_it_fails_on_is_one_line(provider, props, said):
    with pytest.raises(ServiceError) as raised:
        provider.create(props("echo working; echo 'error: no such archive'; exit 1"))
    assert str(raised.value) == "dataset ended (exit code 1): no such archive"
    assert said == ["dataset: working", "dataset: error: no such archive"]


def test_another_command_is_run_anew(provider, props):
    found = provider.diff("dataset", props(), props("true"))
    assert (found.changes, found.replaces) == (True, [])
    assert not provider.diff("dataset", props(), props()).changes


def test_it_inherits_nothing_of_whoever_runs_up(provider, props, said, monkeypatch):  # F35
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "canary")
    provider.create(props("env"))
    assert "dataset: MARK=x" in said
    assert "canary" not in "\n".join(said)


def test_a_cancel_has_it_end_and_tidy_up(provider, props, said):
    raised: list[BaseException] = []

    def run() -> None:
        try:
            provider.create(props(SLOW))
        except CanceledError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "dataset: working" not in said:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (process,) = provider._running
    provider.cancel()
    thread.join(DEADLINE_SECONDS)
    assert raised
    assert said[-1] == "dataset: removed"
    assert not psutil.pid_exists(process.pid)
    with pytest.raises(CanceledError):  # from now on
        provider.create(props())


def test_the_real_program_is_started_by_this_environments_python(provider, props, said):
    provider.create(props("python3 -c 'import sys; print(sys.prefix)'"))
    assert said == [f"dataset: {sys.prefix}"]
