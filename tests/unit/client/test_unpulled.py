"""Before machines end, the runs that nobody has pulled are named; and nothing holds the end up."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from access import typed
from client import store
from client.outputs import StackOutputs
from client.pull import unpulled
from client.pull.transfer import Transfer
from training import checkpoint_files, objects
from training.runs import Run

ENDS = {"expiresAt": "2030-01-01T00:00:00+00:00"}


@pytest.fixture
def place(stack: StackOutputs) -> store.Store:
    for name in ("first", "second"):
        run = Run(stack.storage_url, name)
        run.start({"epochs": 1})
        run.write_metrics([{"epoch": 0}])
    return store.open_store(stack)


def warned(
    values: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    outputs_file: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What `make down` says before it destroys."""
    monkeypatch.setenv("TRAINYARD_OUTPUTS", str(outputs_file(json.dumps(values))))
    monkeypatch.setattr("sys.argv", ["unpulled", "-s", "dev"])
    unpulled.main()
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_run_is_home_until_it_has_stored_more(
    place: store.Store, stack: StackOutputs, tmp_path: Path
) -> None:
    assert unpulled.unpulled(place) == ["first", "second"]
    Transfer(place, "first", tmp_path / "home").run()
    assert unpulled.unpulled(place) == ["second"]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "w.pt").write_bytes(b"w")
    run = objects.open_url(f"{stack.storage_url}/first")
    checkpoint_files.store(run, "checkpoint_000001-abcd", tmp_path / "files", {})
    assert unpulled.unpulled(place) == ["first", "second"]
    Transfer(place, "first", tmp_path / "home").run()
    place.put("first/checkpoint_000002-cdef/w.pt", b"cut off")
    assert unpulled.unpulled(place) == ["second"]
    Run(stack.storage_url, "first").write_metrics([{"epoch": 0}, {"epoch": 1}])
    assert unpulled.unpulled(place) == ["first", "second"]


def test_a_run_that_was_copied_elsewhere_is_safe(place: store.Store) -> None:
    place.put("first/replicated.json", b'{"checkpoint": "", "epochs": 0}')
    place.put("second/replicated.json", b'{"checkpoint": "", "epochs": 1}')
    assert unpulled.unpulled(place) == ["first"]


@pytest.mark.usefixtures("place")
def test_runs_are_named_where_the_machines_end(
    values: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    outputs_file: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert warned(values, monkeypatch, outputs_file, capsys) == ""
    said = warned(values | ENDS, monkeypatch, outputs_file, capsys)
    command = typed.command("train pull RUN -s dev")
    assert said == (
        "warning: these runs were not pulled, and end with the machines of stack 'dev': "
        f"first, second; bring one home with `{command}`\n"
    )


def test_a_store_that_is_gone_holds_no_destroy_up(
    values: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    outputs_file: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(unpulled, "DEADLINE_S", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        bucket = {"storageUrl": "s3://ray", "bucket": "ray", "objectStoreEndpoint": address}
        begun = time.monotonic()
        said = warned(values | ENDS | bucket, monkeypatch, outputs_file, capsys)
        assert time.monotonic() - begun < 30
    assert "of stack 'dev' were not pulled is not known (no answer within 1 s)" in said
    said = warned(values | ENDS | bucket, monkeypatch, outputs_file, capsys)
    assert "is not known (" in said


def test_a_stack_that_is_not_up_is_the_destroys_matter(
    monkeypatch: pytest.MonkeyPatch,
    outputs_file: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert warned({}, monkeypatch, outputs_file, capsys) == ""
