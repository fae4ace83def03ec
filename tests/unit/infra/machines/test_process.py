"""Which changes of a program's properties do what; the rest needs a real supervisord."""

import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.values import UNKNOWN
from infra.machines.on_host import OnHostProvider
from infra.machines.process import DaemonProvider, DataProvider, ProgramProvider
from tests.web_program import web_program

PROPS = web_program("/tmp/ty", 80, {}, secrets={"password": "x"}, healthy=True)


@pytest.fixture
def well(monkeypatch) -> None:
    """Have all services as they were made."""
    monkeypatch.setattr(OnHostProvider, "fault", lambda *_: "")


@pytest.mark.usefixtures("well")
def test_nothing_changed():
    same = {**PROPS, "stopSeconds": 2, "healthy": None, "__provider": "other"}
    result = ProgramProvider().diff("web", PROPS, same)
    assert (result.changes, result.replaces) == (False, [])


@pytest.mark.parametrize("key", ["command", "environment", "secrets", "health", "startTimeout"])
def test_most_changes_are_made_in_place(key):
    result = ProgramProvider().diff("web", PROPS, {**PROPS, key: "changed"})
    assert (result.changes, result.replaces) == (True, [])


@pytest.mark.parametrize("key", ["folder", "name"])
def test_another_place_is_another_program_and_the_old_one_goes_first(key):
    result = ProgramProvider().diff("web", PROPS, {**PROPS, key: "changed"})
    assert result.replaces == [key]
    assert result.delete_before_replace


def test_a_supervisor_is_replaced_for_another_folder_only():
    old = {"folder": "/tmp/ty", "identifier": "a", "ports": {"gcsPort": [1]}}
    result = DaemonProvider().diff("x", old, {**old, "ports": {"gcsPort": [2]}})
    assert (result.changes, result.replaces) == (True, [])
    assert DaemonProvider().diff("x", old, {**old, "folder": "/tmp/tz"}).replaces == ["folder"]


@pytest.mark.usefixtures("well")
def test_only_a_reservation_that_is_over_replaces_the_supervisor():  # D3
    now = datetime.now(UTC)
    past, soon, later = (
        {"end": (now + timedelta(hours=hours)).isoformat(), "drainSeconds": 60}
        for hours in (-1, 1, 2)
    )
    old = {"folder": "/tmp/ty", "identifier": "a", "ports": {}}
    for before, after, changes, replaces in (
        (None, None, False, []),
        (soon, soon, False, []),
        (None, soon, True, []),
        (soon, later, True, []),
        (soon, None, True, []),
        (past, later, True, ["reservation"]),
        (past, None, True, ["reservation"]),
    ):
        olds = {**old, "reservation": before} if before else old
        news = {**old, "reservation": after} if after else old
        found = DaemonProvider().diff("x", olds, news)
        assert (found.changes, found.replaces) == (changes, replaces), (before, after)


@pytest.mark.parametrize("runs", [True, False])
def test_a_stack_that_is_up_stays_with_its_checkout(runs, monkeypatch):  # F57
    said = {"find": runs or None, "elsewhere": "", "taken": ""}
    monkeypatch.setattr(DaemonProvider, "act", lambda *called: said[called[1]])
    mine, theirs = "/var/tmp/trainyard-00000a", "/var/tmp/trainyard-00000b"
    news = {"folder": mine, "mark": {"stack": "dev"}}

    def faults(olds: dict[str, Any], news: dict[str, Any] = news) -> list[str]:
        found = DaemonProvider().check(olds, news)
        assert found.inputs == news
        return [fault.reason for fault in found.failures]

    refused = faults({"folder": theirs})
    assert len(refused) == runs
    if runs:
        assert f"stack dev is up from another checkout, in {theirs}" in refused[0]
        assert "end it with `make down`, here or there" in refused[0]
    # The first `up`; no change; and what the user has set is taken.
    for olds in ({}, {"folder": mine}, {"folder": "/srv/state"}):
        assert faults(olds) == []
    assert faults({"folder": theirs}, {**news, "folder": "/srv/state"}) == []


def test_ports_that_others_hold_are_told_before_anything_starts(tmp_path):  # F17
    """In a preview, whose mark is not known yet; a change is asked for its new ports only."""
    mark = dict.fromkeys(("id", "by"), UNKNOWN) | {"project": "trainyard", "stack": "lab"}
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        first, second = (each.getsockname()[1] for each in (one, two))
        news: dict[str, Any] = {"folder": str(tmp_path / "s"), "identifier": "x", "data": UNKNOWN}
        news |= {"mark": mark, "ports": {"dashboardPort": [first], "gcsPort": [float(second)]}}

        def lines(olds: dict[str, Any], **more: Any) -> list[str]:
            found = DaemonProvider().check(olds, news | more).failures
            return [line for fault in found for line in fault.reason.splitlines()]

        *told, advice = lines({})
        assert [line.partition(" is held by ")[0] for line in told] == [
            f"port {first} (dashboardPort)",
            f"port {second} (gcsPort)",
        ]
        assert "portOffset" in advice
        assert lines(news) == []
        (told_, _) = lines(news | {"ports": {"dashboardPort": [first]}})
        assert told_.startswith(f"port {second} (gcsPort) is held by ")
        assert lines({}, host={"host": "gpu1"}) == []  # it may not even exist yet
    assert not (tmp_path / "s").exists()


def test_whether_data_is_kept_can_change():
    result = DataProvider().diff(
        "x", {"folder": "/d", "keep": True}, {"folder": "/d", "keep": False}
    )
    assert (result.changes, result.replaces) == (True, [])
