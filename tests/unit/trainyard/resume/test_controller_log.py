"""On a busy machine Ray Train's controller logs one line, without a traceback."""

import io
import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from ray.exceptions import GetTimeoutError
from ray.train import ScalingConfig
from ray.train.v2._internal.execution.scaling_policy import autoscaling_coordinator_client as sender

from trainyard.resume import controller_log


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def controller(monkeypatch, log) -> Iterator[Any]:
    """Ray Train's own sender in a process that Ray has prepared."""
    logger = logging.getLogger(controller_log.LOGGER)
    assert sender.logger is logger
    before, handler = logger.filters[:], logging.StreamHandler(log)
    logger.addHandler(handler)
    monkeypatch.setattr(sender, "get_or_create_autoscaling_coordinator", Mock())
    controller_log.shorten()
    yield sender.TrainAutoscalingCoordinatorClient("first")
    logger.filters[:] = before
    logger.removeHandler(handler)


def test_late_answers_are_told_once_and_in_one_line(controller, monkeypatch, log):
    monkeypatch.setattr(ray, "get", Mock(side_effect=GetTimeoutError("5 s")))
    for _ in range(3):
        controller.send_resource_request(ScalingConfig(num_workers=1), 1)
    controller.cancel_resource_request()
    assert log.getvalue() == f"{controller_log.BUSY}\n"


def test_other_failures_keep_their_traceback(controller, monkeypatch, log):
    monkeypatch.setattr(ray, "get", Mock(side_effect=RuntimeError("no such actor")))
    controller.send_resource_request(ScalingConfig(num_workers=1), 1)
    assert "Failed to send resource request" in log.getvalue()
    assert "no such actor" in log.getvalue()
