"""Shortens the log of Ray Train's controller: one line, no tracebacks.

The controller tells Ray's autoscaler every few seconds what it needs. If the autoscaler answers
late, the controller logs a traceback each time; training does not depend on it. Of a worker that
was lost, trainyard/resume/lost_workers.py tells.
"""

import logging

from ray.exceptions import GetTimeoutError

LOGGER = "ray.train.v2._internal.execution.scaling_policy.autoscaling_coordinator_client"
BACKEND = "ray.train.v2._internal.callbacks.backend_setup"  # warns that a lost worker is silent
BUSY = "warning: the cluster is busy and answers Ray Train late; training goes on"


def shorten() -> None:
    """Sets the filter."""
    logging.getLogger(BACKEND).setLevel(logging.ERROR)
    logging.getLogger(LOGGER).addFilter(LateAnswers())


class LateAnswers(logging.Filter):
    """Logs the first late answer as one line, drops the others, and passes all other records."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, GetTimeoutError):
            return True
        first, self._told = not self._told, True
        record.msg, record.args, record.exc_info = BUSY, (), None
        return first
