"""The timer of a reservation, by a clock that the tests give; the rest needs a supervisord."""

import os
import subprocess
from datetime import UTC, datetime
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from infra.runtimes import ending, owned_processes
from tests.waiting import wait_for

END = 1010.0


class Clock:
    """A clock that somebody sets while the timer sleeps."""

    def __init__(self, *jumps: float) -> None:
        self.now, self._jumps, self.slept = 1000.0, list(jumps), 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= ending.LOOK_SECONDS
        self.slept += seconds
        self.now += seconds + (self._jumps.pop(0) if self._jumps else 0)


def ended(monkeypatch: pytest.MonkeyPatch, clock: Clock, *failures: Exception) -> list[Any]:
    """Run the timer with a drain of 5 s, which fails or hangs; return the events until the end."""
    events: list[Any] = []
    begun, over = Event(), Event()

    def drain(seconds: float) -> None:
        events.append(("drain", seconds))
        begun.set()
        if failures:
            raise failures[0]
        over.wait(10)
        events.append("the drain has ended")

    def end(_: object) -> None:
        events.append(("end", clock.now))
        over.set()

    def look() -> None:
        assert clock.now < END - 5 or begun.wait(30)

    services = SimpleNamespace(look=look, drain=drain, end=lambda: None)
    monkeypatch.setattr(ending, "time", clock)
    monkeypatch.setattr(ending, "services", lambda *_: services)
    monkeypatch.setattr(ending, "end_all", end)
    at = datetime.fromtimestamp(END, UTC).isoformat()
    ending.main({"end": at, "drainSeconds": 5, "folder": "/nowhere", "mark": {"id": "1"}})
    return events[:2]


def test_a_drain_that_hangs_or_fails_puts_no_end_off(  # F82
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(ending, "say", told.append)
    for failures in ((), (subprocess.CalledProcessError(1, "python"),)):
        assert ended(monkeypatch, Clock(), *failures) == [("drain", 5), ("end", END)]
    wait_for("the reason", lambda: [each for each in told if "could not be drained" in each], 30)
    steady = (0.0,) * 6
    assert ended(monkeypatch, Clock(*steady, 600))[1:] == [("end", END - 3 + 600)]
    assert ended(monkeypatch, Clock(*steady, -600))[1:] == [("end", END)]


def test_a_timer_that_was_killed_goes_on_where_it_was(  # F82
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for late, events in ((-2, [("drain", 2), ("end", END)]), (20, [("end", END + 20)])):
        clock = Clock()
        clock.now = END + late
        assert ended(monkeypatch, clock) == events


def test_the_timer_of_a_supervisord_that_was_killed_ends_all_but_itself(  # F82
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def finish(_: str) -> None:
        raise ConnectionRefusedError

    daemon: Any = SimpleNamespace(finish=finish, url="unix://s", mark=None, folder=None)
    found = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 7, 8)]
    monkeypatch.setattr(owned_processes, "supervised", lambda *_: found)
    killed: list[int] = []
    monkeypatch.setattr(
        owned_processes, "end", lambda find, _: killed.extend(p.pid for p in find())
    )
    ending.end_all(daemon)
    assert killed == [7, 8]


def test_the_timer_follows_the_clock_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:  # D3
    for jumps, slept in (((), 10), ((0, 0, 7), 3), ((3600,), 1), ((0, -60), 70)):
        clock = Clock(*jumps)
        monkeypatch.setattr(ending, "time", clock)
        looks: list[int] = []
        ending.wait_until(END, lambda looks=looks: looks.append(1))
        assert clock.slept == len(looks) == slept, jumps
