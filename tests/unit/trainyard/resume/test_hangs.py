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
    monkeypatch.setattr(hangs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_worker_is_silent_from_one_batch_to_the_next_and_never_outside(now):
    seen = [hangs.silent_s()]

    def batches():
        for waited in (5, 7):
            now[0] += waited
            seen.append(hangs.silent_s())
            yield waited

    for waited in hangs.noted(batches()):
        seen.append(hangs.silent_s())
        now[0] += waited
    assert [*seen, hangs.silent_s()] == [0, 5, 0, 12, 0, 0]


class Workers:
    """Two workers with a batch in hand, of which each answers for how long."""

    watch: Hangs

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


@pytest.fixture
def look(monkeypatch, now, tmp_path) -> Any:
    """Have workers trained and polled; what became of them."""

    def look(*silent: Any, minutes: float = 1, status: Any = FINE) -> Workers:
        workers = Workers(monkeypatch, *silent)
        workers.watch = Hangs(tmp_path.as_uri(), minutes)
        workers.watch.after_worker_group_training_start(workers.group)
        workers.watch.after_worker_group_poll_status(status)
        return workers

    return look


def test_what_hangs_ends_after_its_stacks_are_kept(look, now, tmp_path, capsys):  # F26
    workers = look(61.0, OSError("late"))
    said, (file,) = capsys.readouterr().out, tmp_path.glob("hangs/*.txt")
    assert workers.killed == [0]
    assert said == (
        "Hang: no batch of worker 0 has ended for 1.0 minutes; "
        f"the stacks of all workers are in {file.as_uri()}.\n"
    )
    text = file.read_text()
    assert "\n==> worker 0, pid 50 on 10.0.0.1, seconds in its batch: 61.0 <==\nstack" in text
    assert "worker 1, pid 51 on 10.0.0.1, seconds in its batch: no answer: OSError: late" in text
    now[0] += 60
    workers.watch.after_worker_group_poll_status(FINE)  # before Ray Train notices the end
    assert workers.killed == [0]


def test_what_hangs_ends_although_its_stacks_cannot_be_kept(look, monkeypatch, capsys):  # F26
    monkeypatch.setattr(hangs, "open_url", lambda _: (_ for _ in ()).throw(OSError("away")))
    assert look(61.0, 61.0).killed == [0, 1]
    said = capsys.readouterr().out
    assert "warning: the stacks of a hang are not kept: OSError: away" in said
    monkeypatch.setattr(Workers, "_worker", lambda *_: 1)
    look(61.0, 61.0)
    assert "warning: a look for hangs failed: AttributeError" in capsys.readouterr().out


def test_workers_that_train_fail_or_leave_are_let_be(look, now, capsys):
    assert look(61.0, 61.0, status=FAILED).asked == []
    for silent in (59.0, RuntimeError("gone")):
        workers = look(silent, 5.0)
        for waited, asked in ((0, 2), (60 / hangs.LOOKS + 1, 4)):
            now[0] += waited
            workers.watch.after_worker_group_poll_status(FINE)
            assert workers.asked == [hangs.silent_s] * asked
        workers.watch.before_worker_group_shutdown(workers.group)
        now[0] += 60
        workers.watch.after_worker_group_poll_status(FINE)
        assert (len(workers.asked), workers.killed) == (4, [])
    assert capsys.readouterr().out == ""


def test_nobody_looks_for_ever_or_in_a_session_with_a_debugger(look, monkeypatch):
    assert look(61.0, 61.0, minutes=0).asked == []
    session = '{"runtime_env": {"env_vars": {"TRAINYARD_DEV_SESSION": "x"}}}'
    monkeypatch.setenv(JOB_VARIABLE, session)
    assert look(61.0, 61.0).asked == []


def test_workers_get_it_too(tmp_path):
    assert isinstance(pickle.loads(pickle.dumps(Hangs(tmp_path.as_uri(), 1))), Hangs)
