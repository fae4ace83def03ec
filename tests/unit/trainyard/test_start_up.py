"""What a job's processes do before their imports."""

import gc

import pytest

from tests.waiting import wait_for
from trainyard import job, start_up


@pytest.fixture(autouse=True)
def _usual():
    start_up.collect_as_usual()
    yield
    start_up.collect_as_usual()


def test_a_process_collects_less_until_its_training_begins(monkeypatch):
    assert gc.get_threshold() == start_up.USUAL
    start_up.of_worker()
    assert gc.get_threshold() == (start_up.THRESHOLD, *start_up.USUAL[1:])
    found = []
    monkeypatch.setattr(job, "Session", dict)  # outside of a training
    job._work(lambda _: found.append(gc.get_threshold()), {})
    assert found == [start_up.USUAL]


def test_a_process_that_does_not_train_collects_as_usual_soon(monkeypatch):
    monkeypatch.setattr(start_up, "SECONDS", 0.01)
    start_up.of_worker()
    wait_for("as usual", lambda: gc.get_threshold() == start_up.USUAL)
