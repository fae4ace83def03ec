"""Jobs of a cluster: reach the job server, find a job, read its log."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from trainyard.access import typed
from trainyard.client import health
from trainyard.client.dashboard import RefusedError, UnreachableError, UnreadableError
from trainyard.client.errors import ClientError, guess
from trainyard.client.job_server import Job, JobServer
from trainyard.client.outputs import StackOutputs
from trainyard.tracking import run_folder

SERVER_TIMEOUT_S = 60  # forty commands at once keep a head of two cores busy for that long
POLL_S = 0.2
LOST_AFTER_S = 30
LOST_THROUGH_SSH_S = 300  # a laptop changes its network, a host restarts its sshd
STOP_DEADLINE_S = 60

VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.")
FIRST_WITH_TOKENS = (2, 54)  # of Ray; an older one ignores RAY_AUTH_MODE=token
MOST_NAMED = 10  # jobs in a message
ATTEMPT = "attempt"  # metadata that a queue adds


def patience(outputs: StackOutputs) -> float:
    """Return for how many seconds a stack's job server may be out of reach."""
    return LOST_THROUGH_SSH_S if outputs.away else LOST_AFTER_S


def connect(outputs: StackOutputs) -> JobServer:
    """The stack's job server; ClientError if the server does not answer, or refuses the token."""
    where = f"{outputs.dashboard_url} (stack {outputs.stack!r})"
    server = JobServer(outputs)
    try:
        said = server.version(SERVER_TIMEOUT_S)
    except RefusedError as error:
        if error.status in (401, 403):
            if outputs.attached:
                new = "one that is yours" if outputs.owner else "the cluster's own"
                raise ClientError(
                    f"{where} {'refuses the' if outputs.ray_token else 'asks for a'} token "
                    f"({error.status}): give {new} with "
                    f"`train attach {outputs.dashboard_url} --token-file FILE -s {outputs.stack}`"
                ) from None
            raise ClientError(
                f"the job server at {where} refuses the token of the output rayToken "
                f"({error.status}): the outputs are older than the cluster, or another stack's; "
                "read them again without --outputs, or write the file again"
            ) from None
        raise ClientError(
            f"{where} answers {error.status} to a request for Ray's version: "
            "it is not a Ray dashboard, or it is still starting; try again, then look at its log"
        ) from None
    except UnreadableError:
        said = None
    except UnreachableError as error:
        end = outputs.expires_at
        is_over = end is not None and end < datetime.now(UTC)
        ended = f"it ended itself at {end:%Y-%m-%d %H:%M} UTC; run `make up`" if is_over else ""
        raise ClientError(
            f"no job server answers at {where} ({error}): {ended or health.remedy(outputs)}, or "
            "name the right stack with --stack"
        ) from None
    _check_version(said, where)
    return server


def _check_version(said: object, where: str) -> None:
    """Refuses a Ray that ignores RAY_AUTH_MODE: anyone who reaches it can run code."""
    version = str(said.get("ray_version", "")) if isinstance(said, dict) else ""
    found = VERSION.match(version)
    if found is None:
        raise ClientError(
            f"{where} does not tell its version of Ray: it is not a Ray dashboard; look at what "
            "listens there"
        )
    if (int(found[1]), int(found[2])) < FIRST_WITH_TOKENS:
        least = ".".join(map(str, FIRST_WITH_TOKENS))
        raise ClientError(
            f"the cluster at {where} is Ray {version[:40]}, which asks for no token (Ray does "
            f"from {least} on): end it, and start one of this client's version (a stack: by "
            "`make up`)"
        )


def submissions(server: JobServer) -> list[Job]:
    """Submitted jobs, newest first."""
    return newest_first(server.jobs())


def newest_first(found: Iterable[Job]) -> list[Job]:
    """Return the submitted ones of all jobs, newest first."""
    return sorted((job for job in found if job.submitted), key=lambda job: -job.start_time)


def newest(outputs: StackOutputs, run: str) -> Job | None:
    """Return the newest job of a run, None without one; ClientError if the server is away."""
    return next((job for job in submissions(connect(outputs)) if job.run == run), None)


def resolve(server: JobServer, wanted: str) -> Job:
    """Finds a job by its submission id, or by its run's name: the active one, else the newest.

    Raises:
        ClientError: no such job or run, or several active jobs of the run.
    """
    return pick(submissions(server), wanted)


def pick(found: Sequence[Job], wanted: str) -> Job:
    """Do what `resolve` does, in a list."""
    for job in found:
        if job.submission_id == wanted:
            return job
    of_run = [job for job in found if job.run == wanted]
    active = [job for job in of_run if not job.status.ended]
    if len(active) > 1:
        ids = ", ".join(job.submission_id for job in active[:MOST_NAMED])
        raise ClientError(
            f"run {wanted!r} has {len(active)} active jobs: give the id of one instead: {ids}"
        )
    for job in active or of_run:
        return job
    near = guess(wanted, (name for job in found for name in (job.submission_id, job.run) if name))
    raise ClientError(
        f"no job and no run of this cluster is called {wanted[:80]!r}: {near}"
        "`train list` shows the jobs"
    )


def lines_before(job: Job, outputs: StackOutputs, since: float) -> int:
    """Return how many lines a job's log had at a time; 0 for 0, NoTimesError if none is known."""
    if not since:
        return 0
    from trainyard.client import history, store  # noqa: PLC0415 - for this alone

    number = job.metadata.get(ATTEMPT, "")
    attempt = "" if number in ("", "0", "1") else f"-{number}"
    run = history.valid_name(job.run or job.submission_id.lower())  # another client's has no run
    log = f"{run}/{run_folder.log_of({'job': f'{job.submission_id}{attempt}'})}"
    return history.lines_before(store.open_store(outputs), log, since)


def read_log(server: JobServer, job_id: str) -> Iterator[str]:
    """Yield the pieces of a job's log so far; ClientError if the server refuses it."""
    try:
        yield from server.log_pieces(job_id)
    except RefusedError as error:
        said = (error.text.strip().splitlines() or ["no reason given"])[-1]
        raise ClientError(
            f"the log of job {job_id} cannot be read ({error}: {said[:200]}): it is lost if the "
            "node that it ran on is gone; "
            f"`train status {typed.argument(job_id)}` tells how it ended"
        ) from None


def wait_for_end(
    server: JobServer, job_id: str, within_s: float = STOP_DEADLINE_S, told: str = "to stop"
) -> Job:
    """Waits until a job has ended that was told to stop, or to do little.

    Raises:
        ClientError: it has not ended in time.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(UnreachableError, UnreadableError):  # cut
            job = server.job(job_id)
            if job.status.ended:
                return job
        time.sleep(POLL_S)
    raise ClientError(
        f"job {job_id} was told {told} and has not ended within {within_s:g} s: "
        f"look at it with `train status {typed.argument(job_id)}`"
    )
