"""The log of a service's replica in this process."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.serving.replica_log import ReplicaLog
from trainyard.store.objects import Store


@contextmanager
def replica_log(store: Store, service: str, replica: str) -> Iterator[ReplicaLog]:
    """Keeps what is printed, as in a replica, and leaves streams and loggers as they were."""
    streams, logger = (sys.stdout, sys.stderr), logging.getLogger("ray.serve")
    handlers = [*logger.handlers]
    log = ReplicaLog(store, service, replica)
    try:
        yield log
    finally:
        log.end()
        sys.stdout, sys.stderr = streams
        logger.handlers = handlers
