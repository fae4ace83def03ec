"""Who holds a run: each submission creates the next record of it in the store, or fails to.

    .trainyard/claims/<run>/000003    JSON: job, user, session (of the head) and time

The newest counts, unless its job has ended, or the head that knew the job is gone. Clients that
look at a head at the same moment do not see the jobs of one another; the store lets one create.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus

from trainyard.client.console import say
from trainyard.client.dashboard import RefusedError
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import JobServer
from trainyard.client.jobs import SERVER_TIMEOUT_S
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.failpoints import reach
from trainyard.store.objects import Store

FOLDER = ".trainyard/claims"
GRACE_S = 120  # from a claim until its job is known: requests of a submission may take so long
POLL_S = 0.5


@contextmanager
def held(
    run: str, job: str, outputs: StackOutputs, server: JobServer, *, force: bool
) -> Iterator[None]:
    """Holds a run for a submission, unless no store is in reach; gives it back if that is refused.

    With `force` a job that the head does not know holds nothing.

    Raises:
        ClientError: another job holds the run.
    """
    if outputs.keeps_files_away or not outputs.storage_url:
        yield
        return
    session = str(server.version(SERVER_TIMEOUT_S).get("session_name", ""))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    mine = {"job": job, "user": outputs.user, "session": session, "time": now}
    store = open_store(outputs)
    name = _take(store, run, mine, server, force=force)
    try:
        yield
    except ClientError as error:
        if not isinstance(error, UnreachedError):  # the head may have accepted the job
            store.write(name, json.dumps(mine | {"job": ""}).encode())
        raise


def _take(store: Store, run: str, mine: dict[str, str], server: JobServer, *, force: bool) -> str:
    """Return the name of the newest record, once it is mine."""
    watched, until = "", 0.0
    while True:
        names = store.listed(f"{FOLDER}/{run}")  # a file system may add names of its own
        numbers = sorted(int(each) for each in names if each.isdecimal()) or [0]
        *old, newest = (f"{FOLDER}/{run}/{number:06d}" for number in numbers)
        holder = _read(store, newest)
        if holder == mine:
            reach("claim.written")
            store.delete(*old)
            return newest
        job, what = holder.get("job", ""), "run {!r} is held by job {} of {} since {}"
        what = what.format(run, job, holder.get("user"), holder.get("time"))
        if job and holder.get("session", mine["session"]) == mine["session"]:
            try:
                if not (status := server.job(job).status).ended:
                    raise ClientError(
                        f"{what} ({status}): follow it (train logs -f {job}), stop it, or take "
                        "another --name"
                    )
            except RefusedError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                if newest != watched and not force:
                    watched, until = newest, time.monotonic() + GRACE_S
                    say(
                        f"{what}, which is not known yet: waiting, at most {GRACE_S} s (or --force)"
                    )
                if time.monotonic() < until:
                    time.sleep(POLL_S)
                    continue
        with suppress(FileExistsError):
            reach("claim.write")
            store.create(f"{FOLDER}/{run}/{numbers[-1] + 1:06d}", json.dumps(mine).encode())


def _read(store: Store, name: str) -> dict[str, str]:
    content = store.get(name)
    try:
        return {} if content is None else {k: str(v) for k, v in json.loads(content).items()}
    except (AttributeError, ValueError, RecursionError):  # it may be half written
        return {"job": "?"}
