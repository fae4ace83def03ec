"""The command: exit codes, both forms of the report, machines, outputs; nothing is written."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine.providers import DynamicProvider
from infra.machines import probe
from infra.operate import health
from infra.operate.dashboard import AskError
from infra.operate.drift import __main__ as drift
from infra.operate.drift import expected, look, machines, ray_nodes
from infra.operate.drift.findings import LAYERS, RAY, SERVICES, DriftReport, Finding
from tests.outputs import names_of_outputs
from tests.unit.engine.conftest import stack  # noqa: F401 - a fixture: a stack of files
from trainyard.access import outputs
from trainyard.access.ssh import SshError

FINDING = Finding(layer=SERVICES, name="web", expected="running", found="stopped", action="make up")
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def _run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = drift.main(arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_drift_of_a_stack_of_files(stack, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(expected, "differing", lambda *_: [])
    stack.declare(a={"text": "one"}, b={"text": "two", "token": "canary-token-value"})
    stack.up()
    place = ("-C", str(stack.project), "-s", "dev")
    before = _contents(stack.root)
    code, text, _ = _run(capsys, *place)
    assert (code, text) == (0, "stack dev: 2 resources looked at, no findings\n")
    next(stack.folder.glob("a.*.json")).write_text(json.dumps({"text": "by hand", "kind": "plain"}))
    next(stack.folder.glob("b.*.json")).write_text(
        json.dumps({"text": "two", "kind": "plain", "token": "canary-other-value"})
    )
    code, text, _ = _run(capsys, *place)
    assert code == 2
    assert "text one" in text
    assert "text by hand" in text
    assert "token [secret]" in text
    assert "canary" not in text
    next(stack.folder.glob("b.*.json")).unlink()
    code, text, _ = _run(capsys, *place, "--json")
    assert code == 2
    report = json.loads(text)
    assert [(each["name"], each["found"]) for each in report["findings"]] == [
        ("a", "text by hand"),
        ("b", "it is gone"),
    ]
    assert report["failures"] == []
    # Neither the state, nor a lock, nor what is looked at.
    after = _contents(stack.root)
    assert {
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    } == {path for path in before if "/made/" in path and path.endswith(".json")}


def test_what_is_wrong_with_services_is_asked_of_their_providers(  # F63
    stack,  # noqa: F811
    capsys,
    monkeypatch,
):
    """One that the state has noted is told, though nothing differs from the state."""
    monkeypatch.setattr(expected, "differing", lambda *_: [])
    secret = "canary-token-value"
    stack.declare(a={"text": False, "token": secret}, b={"text": "two"})
    stack.up()
    place = ("-C", str(stack.project), "-s", "dev")
    monkeypatch.setattr(health, "HEALTH", ("text",))
    monkeypatch.setattr(DynamicProvider, "fault", lambda *_: f"a ended\n7 times with {secret}")
    assert _run(capsys, *place, "--health")[:2] == (2, "a ended\\n7 times with [secret]\n")
    code, text, _ = _run(capsys, *place)
    assert (code, "found     a ended" in text) == (2, True)
    monkeypatch.setattr(DynamicProvider, "fault", lambda *_: "")
    assert _run(capsys, *place, "--health")[:2] == (0, "")
    next(stack.folder.glob("b.*.json")).unlink()
    assert _run(capsys, *place, "--health")[:2] == (2, "b is gone\n")
    monkeypatch.setattr(health, "HEALTH", ())
    monkeypatch.setattr(look, "stack_outputs", lambda _: {"nodes": []})
    code, text, _ = _run(capsys, *place, "--health")
    assert (code, "no services: the last refresh found none" in text) == (2, True)
    assert _run(capsys, "-C", str(stack.project), "-s", "other", "--health")[0] == 1


def test_a_stack_that_cannot_be_looked_at(stack, capsys):  # noqa: F811
    code, _, err = _run(capsys, "-C", str(stack.project), "-s", "other")
    assert code == 1
    assert "no stack named 'other'" in err
    stack.declare(a={"text": "one"})
    stack.up()
    locks = stack.root / "backend/.pulumi/locks/organization/files/dev"
    lock = locks / "one.json"
    lock.write_text("torn")
    code, _, err = _run(capsys, "-C", str(stack.project), "-s", "dev")
    assert code == 1
    assert "look again when that has ended" in err
    assert lock.read_text() == "torn"
    lock.unlink()
    stack.state_file.write_text("{")
    code, _, err = _run(capsys, "-C", str(stack.project), "-s", "dev")
    assert code == 1
    assert "is damaged" in err


def test_what_cannot_be_read_is_told_without_secrets(
    stack,  # noqa: F811
    capsys,
    monkeypatch,
):
    stack.declare(a={"token": "canary-token-value"})
    stack.up()
    monkeypatch.setattr(
        DynamicProvider,
        "read",
        Mock(side_effect=RuntimeError("the token canary-token-value is refused")),
    )
    code, text, _ = _run(capsys, "-C", str(stack.project), "-s", "dev")
    assert code == 1
    assert "not looked at: the token [secret] is refused" in text


@pytest.mark.parametrize(
    ("findings", "failures", "code"),
    [([], [], 0), ([FINDING], [], 2), ([], ["no daemon"], 1), ([FINDING], ["no daemon"], 1)],
)
def test_exit_codes(findings, failures, code):
    report = DriftReport(stack="dev", looked=3, findings=findings, failures=failures)
    assert report.code == code
    assert ("not looked at: no daemon" in report.text()) == bool(failures)


def test_a_report_goes_by_layer():
    node = Finding(layer=RAY, name="a", expected="alive", found="none", action="make up")
    report = DriftReport(stack="dev", looked=3, findings=[node, FINDING], failures=[])
    assert [each["layer"] for each in json.loads(report.json())["findings"]] == [SERVICES, RAY]
    assert report.text().splitlines()[:5] == [
        "services",
        "  web",
        "    expected  running",
        "    found     stopped",
        "    do        make up",
    ]
    assert set(LAYERS) >= {SERVICES, RAY}


def test_a_silent_dashboard_is_a_failure_only_where_nothing_else_explains_it(
    looked, seen, tmp_path, monkeypatch
):
    monkeypatch.setattr(ray_nodes, "differing", Mock(side_effect=AskError("no answer")))
    known = dict.fromkeys(names_of_outputs(), "")
    whole = drift.examine(tmp_path, "dev", looked(outputs=known))
    assert (whole.code, whole.failures) == (1, ["no answer"])
    page = seen("container:Container", "docker-grafana", gone=True)
    both = drift.examine(tmp_path, "dev", looked(page, outputs=known))
    assert (both.code, both.failures) == (1, ["no answer"])
    head = seen("container:Container", "docker-ray-head", gone=True)
    down = drift.examine(tmp_path, "dev", looked(head, outputs=known))
    assert (down.code, down.failures) == (2, [])


def test_a_full_disk(seen, tmp_path, monkeypatch):
    here = seen("process:Data", "data", props={"folder": str(tmp_path)})
    gone = seen("process:Supervisor", "s", props={"folder": f"{tmp_path}/gone"})
    there = {"host": "10.0.0.7", "port": 22, "user": "ada", "hostKey": "k"}
    host = seen("process:Data", "far", props={"folder": "/d", "host": there})
    off = seen("process:Data", "off", props={"folder": "/d", "host": there | {"host": "10.0.0.8"}})
    monkeypatch.setattr(machines.shutil, "disk_usage", lambda _: type("U", (), {"free": 2**20})())

    def look(connection: Any) -> Any:
        if connection.host == "10.0.0.8":
            raise SshError("off")
        return type("F", (), {"home": "/home/ada", "free_mib": 9000, "free_tmp_mib": 3})()

    monkeypatch.setattr(probe, "probe", look)
    found = machines.full([here, gone, host, off])
    assert [(each.name, each.found) for each in found] == [
        (f"this machine:{tmp_path}", "1 MiB free"),
        ("ada@10.0.0.7:/var/tmp", "3 MiB free"),
    ]


def test_outputs_that_are_missing_and_a_time_that_is_past():
    known = dict.fromkeys(names_of_outputs(), "")
    assert expected.differing("dev", known, NOW) == []
    del known[outputs.BUCKET]
    (lacking,) = expected.differing("dev", known, NOW)
    assert (lacking.layer, lacking.name) == ("outputs", "bucket")
    late = known | {outputs.BUCKET: "", outputs.EXPIRES_AT: "2026-11-23T11:00:00+00:00"}
    (ended,) = expected.differing("dev", late, NOW)
    assert "make down STACK=dev" in ended.action
    assert (
        expected.differing("dev", late | {outputs.EXPIRES_AT: "2026-11-23T13:00:00+00:00"}, NOW)
        == []
    )


def test_a_wrong_command_line_is_no_drift(capsys):
    with pytest.raises(SystemExit) as end:
        drift.main(["--jsn"])
    assert end.value.code == 1
    assert "error: unrecognized arguments: --jsn" in capsys.readouterr().err
