"""`train pull --follow`: pass after pass while a job of the run is queued or runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainyard.client import jobs
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import JobServer
from trainyard.client.pull.transfer import Pulled, Transfer

POLL_S = 5.0


def follow(
    server: JobServer,
    run: str,
    transfer: Transfer,
    tell: Callable[[Pulled], None],
    lost_after_s: float,
) -> str:
    """Pulls changes until no job of the run is active, and then once more.

    Args:
        server: knows the jobs.
        run: name of the run.
        transfer: of the run.
        tell: is called with each pass that brought something, and the last.
        lost_after_s: how long the server may be out of reach.

    Returns:
        How the last job ended, as "SUCCEEDED"; "" if the server knows no job of the run.

    Raises:
        ClientError: a pass failed, no such run exists, or the server was lost.
    """
    answered = time.monotonic()
    while True:
        active, ended = True, ""
        try:
            found = [job for job in jobs.submissions(server) if job.run == run]
            active = any(not job.status.ended for job in found)
            ended = str(found[0].status) if found else ""
            answered = time.monotonic()
        except DashboardError as error:
            if time.monotonic() - answered > lost_after_s:
                raise ClientError(
                    f"lost the job server for {lost_after_s:g} s ({error}): cannot tell whether "
                    f"run {run} goes on; pull again without --follow to get the store's files"
                ) from None
        # Asked before this pass, which so sees all that a job stored before its end.
        pulled = transfer.run()
        if pulled is None and not active:
            raise ClientError(f"no run is called {run!r}, and no job of it waits: see `train runs`")
        if pulled is not None and (pulled.brought or not active):
            tell(pulled)
        if not active:
            return ended
        time.sleep(POLL_S)
