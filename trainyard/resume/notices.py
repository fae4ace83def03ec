"""The notice that a node of a run must go, or the run itself: workers get it together, and leave.

Ray's head knows which nodes are drained, and until when. Ray Train's own watch asks it from a
process that costs two seconds of processor time at each start of the workers: here the same watch
runs in a thread of the first worker. It tells the others once a second, because workers can only
leave after the same batch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import ray
from ray._private.worker import global_worker
from ray.experimental.internal_kv import _internal_kv_get
from ray.train import collective
from ray.train.v2._internal.execution import preemption
from ray.train.v2._internal.execution.context import get_train_context

from trainyard import yielding
from trainyard.errors import JobError

if TYPE_CHECKING:
    from ray.train.v2.api.preemption import PreemptionInfo

EVERY_S = 1.0
MOST_BATCHES = 100  # between two questions


class Notices:
    """Whether a node of the run's workers is being drained, or the queue needs its room."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._watch: preemption.PreemptionWatcher | None = None
        self._package = b""  # the queue's notice
        self._started = False
        self._left = self._gap = 0  # batches until the next question, and of the last pause
        self._asked, self._batches = time.monotonic(), 0  # the last question, and batches since

    def due(self) -> PreemptionInfo | str | None:
        """Return the notice, the same on all workers; each calls it before each batch."""
        if not self._started:
            self._start()
        if self._left > 0:
            self._left -= 1
            self._batches += 1
            return None
        now = time.monotonic()
        rate = self._batches / max(now - self._asked, 1e-3)
        # Quick batches may become slow: a pause is at most twice the previous one.
        most = min(MOST_BATCHES, 2 * self._gap + 1)
        left = 0 if self._world == 1 else max(0, min(most, int(rate * EVERY_S)))
        info: PreemptionInfo | str | None = None
        if self._watch is not None:
            info = self._watch.get_latest_preemption_info() or self._asked_to_yield()
        if self._world > 1:
            left, info = collective.broadcast_from_rank_zero((left, info))
        self._left = self._gap = left
        self._asked, self._batches = now, 1
        return info

    def leave(self, info: PreemptionInfo | str) -> NoReturn:
        """Has Ray Train restart the workers elsewhere, now rather than at the deadline.

        It does not count as a failure: a run may be drained more often than `max_failures`.

        Raises:
            JobError: the queue asks for it: the job ends.
        """
        collective.barrier()
        if isinstance(info, str):
            raise JobError(info)
        now_ms = int(time.time() * 1000)
        get_train_context().preemption_context.preemption_info = replace(info, deadline_ms=now_ms)
        while True:
            time.sleep(1)

    def _start(self) -> None:
        self._started = True
        node = ray.get_runtime_context().get_node_id()
        nodes = [node] * self._world
        if self._world > 1:
            from torch import distributed  # noqa: PLC0415 - takes seconds; a single worker skips it

            distributed.all_gather_object(nodes, node)
        if self._rank != 0:
            return
        # A head that is briefly unavailable does not belong in the log.
        logging.getLogger(preemption.__name__).setLevel(logging.CRITICAL)
        ranks: dict[str, list[int]] = {}
        for rank, name in enumerate(nodes):
            ranks.setdefault(name, []).append(rank)
        self._watch = preemption.PreemptionWatcher(ranks, EVERY_S)
        config = global_worker.core_worker.get_job_config()  # type: ignore[attr-defined]
        job = config.metadata.get("job_submission_id")
        self._package = f"gcs://{yielding.package(job)}".encode() if job else b""

    def _asked_to_yield(self) -> str | None:
        try:
            found = _internal_kv_get(self._package) if self._package else None
            return found.decode() if found else None
        except Exception:  # a head that is briefly away
            return None
