"""A reservation: when `up` is refused, and what a preview says."""

from datetime import UTC, datetime, timedelta

import pulumi
import pytest

from infra.settings import config, reservation
from infra.settings.reservation import Reservation

LEASE = {"start": "2026-12-01T13:00Z", "end": "2026-12-01T15:55Z"}  # D3
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
RESERVED = Reservation.model_validate(LEASE)
START, END = RESERVED.start, RESERVED.end
MINUTE = timedelta(minutes=1)


def test_it_is_in_utc_and_ends_after_its_start(settings, host):  # D3
    found = config.parse(settings(reservation=LEASE), host, "lab").reservation
    assert found is not None
    assert (found.start, found.end) == (
        datetime(2026, 12, 1, 13, tzinfo=UTC),
        datetime(2026, 12, 1, 15, 55, tzinfo=UTC),
    )
    assert config.parse(settings(), host, "lab").reservation is None
    for wrong, line in (
        ({"start": "2026-12-01T13:00"}, "reservation.start = '2026-12-01T13:00': must be a time"),
        ({"start": "2026-12-01T13:00+01:00"}, "reservation.start = .*: must be a time in UTC; "),
        ({"end": "soon"}, "reservation.end = 'soon': must be a time in UTC; write one such as"),
        ({"end": "2026-13-01T13:00Z"}, "reservation.end = .*: must be a time in UTC"),
        ({"end": 5}, "reservation.end = .*5.*: must be a time in UTC"),
        ({"end": LEASE["start"]}, r"reservation.end = .*: must be after start \(2026-12-01 13:00"),
        ({"until": "2026-12-01T13:00Z"}, "reservation.until"),
        ({"beforeEnd": {"run": ""}}, r"reservation.beforeEnd.run = '': must be a command"),
        ({"beforeEnd": {"run": "a", "seconds": 3601}}, "beforeEnd.seconds = '3601': .*1 to 3600"),
    ):
        with pytest.raises(pulumi.RunError, match=line):
            config.parse(settings(reservation={**LEASE, **wrong}), host, "lab")
    pods = {"runtime": "kubernetes", "kubernetes": {"context": "x", "namespace": "y"}}
    hook = {**LEASE, "beforeEnd": {"run": "a"}}
    with pytest.raises(pulumi.RunError, match=r"reservation\.beforeEnd = .* runs where the"):
        config.parse(settings(reservation=hook, **pods), host, "lab")
    hosts = [{"address": "192.0.2.1", "user": "ada", "hostKey": KEY}]
    with pytest.raises(pulumi.RunError, match="startRay = false"):
        config.parse(settings(reservation=LEASE, hosts=hosts, startRay=False), host, "lab")


def test_up_is_refused_outside_of_it_and_a_preview_warns(monkeypatch):  # D3 D5
    said: dict[str, list[str]] = {"info": [], "warn": []}
    for level, texts in said.items():
        monkeypatch.setattr(pulumi.log, level, texts.append)
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    for inside in (START, END - MINUTE):
        reservation.check(RESERVED, "lab", inside)
    early = r"reserved from 2026-12-01 13:00 UTC on \(reservation.start\), in 2 h 05 min: .* Run"
    late = (
        r"ended at 2026-12-01 15:55 UTC \(reservation.end\), 5 min ago, .* set reservation.end to "
        "the new end and run `up` again; results are kept. Or run `make down STACK=lab`"
    )
    at_once = r"ended at 2026-12-01 15:55 UTC \(reservation.end\), 0 min ago"
    outside = ((START - 125 * MINUTE, early), (END, at_once), (END + 5 * MINUTE, late))
    for moment, line in outside:
        with pytest.raises(pulumi.RunError, match=line):
            reservation.check(RESERVED, "lab", moment)
    assert said["warn"] == []
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)
    for moment, _ in outside:
        reservation.check(RESERVED, "lab", moment)
    assert len(said["warn"]) == 3
    whole = "reserved from 2026-12-01 13:00 UTC to 2026-12-01 15:55 UTC (2 h 55 min)"
    assert set(said["info"]) == {whole}
