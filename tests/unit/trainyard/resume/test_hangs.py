"""A worker whose batch never ends is found, its stacks and those of the others are kept."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.dev_session.worker import JOB_VARIABLE
from trainyard.resume import hangs
from trainyard.resume.hangs import Hangs

FINE: Any = SimpleNamespace(errors={})
FAILED: Any = SimpleNamespace(errors={0: OSError()})


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """A clock that stands still until a test sets it."""
    now = [1000.0]
    monkeypatch.setattr(hangs.time, "monotonic", lambda: now[0])
    return now


def test_a_worker_is_silent_from_one_batch_to_the_next_and_never_outside(now):
    assert hangs.silent_s() == 0
    seen = []
    for number in hangs.noted(range(3)):
        now[0] += 7 * number
        seen.append(hangs.silent_s())
    assert seen == [0, 7, 14]
    assert hangs.silent_s() == 0

    def breaks():
        now[0] += 5
        assert hangs.silent_s() == 5  # the first one is waited for too
        raise OSError("no such file")
        yield

    with pytest.raises(OSError, match="no such file"):
        next(hangs.noted(breaks()))
    assert hangs.silent_s() == 0


class Workers:
    """Two workers with a batch in hand, of which each answers for how long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *silent: Any) -> None:
        self.silent = silent
        self.asked: list[Any] = []
        self.killed: list[int] = []
        monkeypatch.setattr(hangs.ray, "get", self._get)
        monkeypatch.setattr(hangs.ray, "kill", self.killed.append)
        self.group: Any = SimpleNamespace(get_workers=lambda: [self._worker(0), self._worker(1)])

    def _worker(self, rank: int) -> Any:
        def execute_async(question: Any, *_: float) -> tuple[int, Any]:
            self.asked.append(question)
            return rank, question

        process = SimpleNamespace(pid=50 + rank, node_ip="10.0.0.1")
        return SimpleNamespace(actor=rank, metadata=process, execute_async=execute_async)

    def _get(self, asked: tuple[int, Any], timeout: float) -> Any:
        assert 0 <= timeout <= hangs.STACK_S
        rank, question = asked
        if isinstance(self.silent[rank], Exception):
            raise self.silent[rank]
        return self.silent[rank] if question is hangs.silent_s else f"stack of {rank}"


def watch(folder: Any, minutes: float = 1) -> Hangs:
    return Hangs(folder.as_uri(), minutes)


@pytest.mark.parametrize("reached", [True, False], ids=["a store", "no store"])
def test_what_hangs_ends_after_its_stacks_are_kept(  # F26
    reached, now, monkeypatch, tmp_path, capsys
):
    workers, found = Workers(monkeypatch, 61.0, OSError("late")), watch(tmp_path / "run")
    if not reached:
        monkeypatch.setattr(hangs, "open_url", lambda _: (_ for _ in ()).throw(OSError("away")))
    found.after_worker_group_training_start(workers.group)
    found.after_worker_group_poll_status(FINE)
    said = capsys.readouterr().out
    assert workers.killed == [0]
    assert "Hang: no batch of worker 0 has ended for 1.0 minutes" in said
    files = [*(tmp_path / "run").glob("hangs/*.txt")]
    assert len(files) == reached
    if reached:
        text = files[0].read_text()
        assert "\n==> worker 0, pid 50 on 10.0.0.1, seconds in its batch: 61.0 <==\nstack" in text
        assert (
            "worker 1, pid 51 on 10.0.0.1, seconds in its batch: no answer: OSError: late" in text
        )
        assert said.endswith(f"; the stacks of all workers are in {files[0].as_uri()}.\n")
    else:
        assert "warning: the stacks of a hang are not kept: OSError: away" in said
    # Ray Train notices the end.
    found.after_worker_group_poll_status(FINE)
    assert workers.killed == [0]


def test_workers_that_train_fail_or_leave_are_let_be(now, monkeypatch, tmp_path, capsys):
    for silent in (59.0, RuntimeError("gone")):
        workers, found = Workers(monkeypatch, silent, 5.0), watch(tmp_path)
        found.after_worker_group_training_start(workers.group)
        found.after_worker_group_poll_status(FAILED)
        assert workers.asked == []
        found.after_worker_group_poll_status(FINE)
        found.after_worker_group_poll_status(FINE)  # not again at once
        assert workers.asked == [hangs.silent_s] * 2
        now[0] += 60 / hangs.LOOKS + 1
        found.after_worker_group_poll_status(FINE)
        assert len(workers.asked) == 4
        found.before_worker_group_shutdown(workers.group)
        now[0] += 60
        found.after_worker_group_poll_status(FINE)
        assert len(workers.asked) == 4
        assert workers.killed == []
    assert capsys.readouterr().out == ""


def test_a_look_that_fails_ends_no_run(now, monkeypatch, tmp_path, capsys):
    workers, found = Workers(monkeypatch, 61.0, 61.0), watch(tmp_path)
    monkeypatch.setattr(hangs.ray, "kill", lambda _: 1 / 0)
    found.after_worker_group_training_start(workers.group)
    found.after_worker_group_poll_status(FINE)
    assert "warning: a look for hangs failed: ZeroDivisionError" in capsys.readouterr().out


def test_nobody_looks_for_ever_or_in_a_session_with_a_debugger(monkeypatch, tmp_path):
    workers = Workers(monkeypatch, 61.0, 61.0)
    session = '{"runtime_env": {"env_vars": {"TRAINYARD_DEV_SESSION": "x"}}}'
    for minutes, job in ((0, "{}"), (1, session)):
        monkeypatch.setenv(JOB_VARIABLE, job)
        found = watch(tmp_path, minutes)
        found.after_worker_group_training_start(workers.group)
        found.after_worker_group_poll_status(FINE)
    assert workers.asked == []


def test_workers_get_it_too(tmp_path):
    assert isinstance(pickle.loads(pickle.dumps(watch(tmp_path))), Hangs)
