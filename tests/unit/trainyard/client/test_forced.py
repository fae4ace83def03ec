"""A head with jobs is restarted only after a question that names them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from trainyard.client import forced
from trainyard.client.job_server import Job, Status

JOBS = [("job-1", "night", False), ("job-2", "", False), ("job-3", "old", True)]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def ask(*options: str, said: str | None = None, jobs: list[tuple[str, str, bool]]) -> None:
        found = [
            Job(
                submission_id=name,
                metadata={"run": run},
                status=Status.FAILED if ended else Status.RUNNING,
            )
            for name, run, ended in jobs
        ]
        # A stack elsewhere: its addresses lead to it only through a tunnel.
        there, here = SimpleNamespace(), SimpleNamespace()
        tunnel = nullcontext(SimpleNamespace(outputs=here))
        servers = {id(here): SimpleNamespace(jobs=lambda: found)}
        monkeypatch.setattr(forced.contract, "of_state", lambda _: there)
        monkeypatch.setattr(forced.way, "tunnel", lambda *_: tunnel)
        monkeypatch.setattr(forced, "JobServer", lambda outputs: servers[id(outputs)])
        monkeypatch.setattr("sys.stdin.isatty", lambda: said is not None)
        monkeypatch.setattr("builtins.input", lambda _: said)
        monkeypatch.setattr("sys.argv", ["forced", "-s", "dev", *options])
        forced.main()

    return ask


def test_jobs_are_named_and_the_user_decides(
    ask: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    ask(said="y", jobs=JOBS)
    named = "a new head of stack 'dev' ends these jobs: job-1 (night), job-2\n"
    assert capsys.readouterr().err == f"{named}Go on? [y/N] "
    ask("--yes", jobs=JOBS)
    assert capsys.readouterr().err == named
    ask(jobs=JOBS[2:])  # nothing to ask
    with pytest.raises(SystemExit, match="nothing was changed"):
        ask(said="", jobs=JOBS)
    with pytest.raises(SystemExit, match="FORCE=yes"):
        ask(jobs=JOBS)


def test_a_rotation_has_jobs_refused(  # F43
    ask: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    ask("--refuse", said="y", jobs=JOBS[2:])
    with pytest.raises(SystemExit, match="or add FORCE=1"):
        ask("--refuse", said="y", jobs=JOBS)
    assert "ends these jobs: job-1 (night), job-2\n" in capsys.readouterr().err
