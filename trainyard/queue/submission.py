"""A submission as it was posted: what the queue reads of it, and what it refuses."""

import json
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from trainyard.packing import Bundle, GaveUpError, amounts, describe, place
from trainyard.queue.models import Job
from trainyard.queue.users import ADMIN, STACK, USER, Caller

MOST_BODY = 4 * 2**20  # bytes
MOST_PRIORITY = 1000
MOST_RETRIES = 1000
MOST_AFTER = 100
MOST_BUNDLES = 1000
MOST_AMOUNT = 1e15
MOST_RUNS = 10_000  # that a job names besides its own
LONGEST = 255  # characters of a name
FIELDS = 5  # of an expression of cron
# Room for the number of an attempt: Ray writes the id into the name of a log file.
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
PACKAGE = "gcs://"
NAMES = {"entrypoint_num_cpus": "CPU", "entrypoint_num_gpus": "GPU", "entrypoint_memory": "memory"}
# Metadata of Ray, which is text, by which `train submit` says what the queue reads.
PRIORITY, AFTER, RETRIES, MINUTES, FORCE = "priority", "after", "retries", "minutes", "force"
EVERY = "every"
RUN_VARIABLE = (
    "TRAINYARD_RUN"  # as trainyard/tracking/run_folder.py has it, which machines may lack
)
STAMP = "-%Y%m%d-%H%M"  # after the names of an entry, in those of its jobs


class RefusedError(ValueError):
    """A submission is refused; the text says why, and what to do."""


def read(body: bytes, now: float, caller: Caller = STACK) -> Job:
    """Return the record of a submission; a user's own token says whose it is.

    Raises:
        RefusedError: it is not one, or out of bounds.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError("the body is not JSON: post a submission of Ray's Jobs API") from None
    if not isinstance(request, dict) or not isinstance(request.get("entrypoint"), str):
        raise RefusedError("the submission has no entrypoint: give the command of the job")
    given = request.get("submission_id") or request.get("job_id")
    job = f"raysubmit_{secrets.token_hex(8)}" if given is None else given
    if not isinstance(job, str) or not ID.fullmatch(job):
        raise RefusedError(
            f"submission id {str(job)[:80]!r} is not 1 to 120 letters, digits, '.', '_' or '-' "
            "beginning with a letter or digit: give another one"
        )
    facts = request.get("metadata") or {}
    if not isinstance(facts, dict) or not all(isinstance(each, str) for each in facts.values()):
        raise RefusedError("metadata is not an object of texts: give it so")
    if caller.role != ADMIN:
        shown = f"{facts.get('run') or facts.get('job') or job} ({caller.name})"
        facts = facts | {"user": caller.name, "job_name": shown}
        request["metadata"] = facts
    found = Job(
        id=job,
        user=facts.get("user", "")[:LONGEST],
        run=facts.get("run", "")[:LONGEST],
        request=json.dumps(request),
        packages=json.dumps(_packages(request)),
        bundles=json.dumps(_bundles(request, facts)),
        # A higher one than that of all others would make them stop for it.
        priority=_whole(
            facts, PRIORITY, -MOST_PRIORITY, 0 if caller.role == USER else MOST_PRIORITY
        ),
        after=json.dumps(_after(facts)),
        seconds=60 * _whole(facts, MINUTES, 1, 10**6) if facts.get(MINUTES) else None,
        retries=_whole(facts, RETRIES, 0, MOST_RETRIES),
        queued=now,
        every=facts.get(EVERY),
        due=next_time(facts[EVERY], now) if EVERY in facts else None,
    )
    if found.every is not None:
        made(found, now)  # its names have room for the time
    return found


def next_time(every: str, now: float) -> float:
    """Return the first time after now that an expression of cron names, in UTC.

    Raises:
        RefusedError: it is none, or names no time.
    """
    try:
        if len(every.split()) == FIELDS and len(every) <= LONGEST:  # a sixth one is seconds
            return next(CronSim(every, datetime.fromtimestamp(now, UTC))).timestamp()
    except (CronSimError, StopIteration):
        pass
    raise RefusedError(
        f"every {every[:80]!r} names no times: give the five fields of cron (minute, hour, day, "
        "month, weekday), such as '0 3 * * *' for each day at 3:00 UTC"
    )


def made(entry: Job, now: float) -> Job:
    """Return the submission that an entry makes, named by the time at which it was due."""
    stamp = f"{datetime.fromtimestamp(entry.due or now, UTC):{STAMP}}"
    request = json.loads(entry.request)
    run = f"{entry.run}{stamp}" if entry.run else ""
    facts = request["metadata"] | {"run": run, "job_name": f"{run} ({entry.user})"}
    del facts[EVERY]
    env = request.get("runtime_env") or {}
    if RUN_VARIABLE in (variables := env.get("env_vars") or {}):
        env = env | {"env_vars": variables | {RUN_VARIABLE: run}}
    own = {"submission_id": f"{entry.id}{stamp}", "metadata": facts, "runtime_env": env}
    return read(json.dumps(request | own).encode(), now)


def forced(job: Job) -> bool:
    """Whether the user queues it although no declared node can hold it."""
    facts = json.loads(job.request).get("metadata") or {}
    return facts.get(FORCE) == "1"


def runs(job: Job) -> set[str]:
    """Return the names of the runs that a submission would write."""
    request = json.loads(job.request)
    more = (request.get("metadata") or {}).get("runs")
    others = str(more).split(",", MOST_RUNS)[:MOST_RUNS] if more else []
    variables = (request.get("runtime_env") or {}).get("env_vars")
    named = variables.get(RUN_VARIABLE) if isinstance(variables, dict) else ""
    return {name[:LONGEST] for name in (job.run, str(named or ""), *others) if name}


def never(bundles: Sequence[Bundle], nodes: Sequence[Bundle]) -> str | None:
    """Say why bundles can never be placed at once on empty nodes; None if they can."""
    names = [*dict.fromkeys(name for bundle in bundles for name in bundle)]
    asked, free = ([amounts(each, names) for each in group] for group in (bundles, nodes))
    with suppress(GaveUpError):  # then Ray finds out
        if place(asked, free) is None:
            largest = max(nodes, key=lambda node: amounts(node, names), default={})
            has = describe({name: largest.get(name, 0.0) for name in names})
            return (
                f"the job asks for {said(bundles)} at once and never fits: the largest of "
                f"{len(nodes)} nodes has {has}; ask for less, or declare a larger node in the "
                "stack's settings and run `make up`"
            )
    return None


def said(bundles: Sequence[Bundle]) -> str:
    """Return bundles in words, equal ones counted."""
    kinds = [describe(each) for each in bundles]
    counted = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return "; ".join(f"{n} times {kind}" if n > 1 else kind for kind, n in counted.items())


def _bundles(request: Mapping[str, Any], facts: Mapping[str, str]) -> list[Bundle]:
    """The bundles that `train submit` says; of others, the one that Ray gives the entrypoint."""
    try:
        if "demand" in facts:
            found = json.loads(facts["demand"])
        else:
            own = {name: request.get(key) for key, name in NAMES.items()}
            own |= request.get("entrypoint_resources") or {}
            found = [own]
        if len(found) > MOST_BUNDLES:
            raise RefusedError(f"{len(found)} bundles, at most {MOST_BUNDLES}: ask for fewer")
        bundles = [
            {str(name): float(amount) for name, amount in each.items() if amount} for each in found
        ]
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, RefusedError):
            raise
        raise RefusedError("the resources are no amounts by name: give them so") from None
    for name, amount in ((n, a) for each in bundles for n, a in each.items()):
        if not 0 <= amount <= MOST_AMOUNT or math.isnan(amount) or len(name) > LONGEST:
            raise RefusedError(f"{name[:80]} {amount:g} is not 0 to {MOST_AMOUNT:g}: ask for less")
    return [each for each in bundles if each]


def _packages(request: Mapping[str, Any]) -> list[str]:
    env = request.get("runtime_env") or {}
    if not isinstance(env, dict):
        raise RefusedError("runtime_env is not an object: give it so")
    modules = env.get("py_modules") or []
    found = [env.get("working_dir"), *(modules if isinstance(modules, list) else [])]
    return [
        each.removeprefix(PACKAGE)
        for each in found
        if isinstance(each, str) and each.startswith(PACKAGE)
    ]


def _after(facts: Mapping[str, str]) -> list[str]:
    found = [each for word in facts.get(AFTER, "").split(",") if (each := word.strip())]
    if len(found) > MOST_AFTER:
        raise RefusedError(f"after has {len(found)} jobs, at most {MOST_AFTER}: name fewer")
    return found


def _whole(facts: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = facts.get(name, "0")
    found = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
    if found is None or not low <= found <= high:
        raise RefusedError(
            f"{name} {text[:40]!r} is not a whole number from {low} to {high}: give one"
        )
    return found
