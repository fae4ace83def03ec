"""What a stack with a queue has cost, as its queue tells it: for commands that show it in passing.

A stack without one is not asked. A queue that does not answer is waited for shortly, and its
figures are left out.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainyard import json_values
from trainyard.access.bounded import MOST_MIB
from trainyard.client import fields
from trainyard.client.history import RunRecord
from trainyard.client.outputs import StackOutputs

TEXTS, AMOUNTS = ("user", "run", "job", "day"), ("gpuHours", "cpuHours", "cost")
COLUMNS = ("gpu_hours", "cpu_hours", "cost")
IDLE = "(idle)"
SHORT_S = 3.0
AN_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the machines have cost; a share without a job is what nobody used."""

    shares: list[dict[str, Any]]  # TEXTS and AMOUNTS of each
    month: float  # $ since the month began, in UTC
    budget: float | None  # $ a month; None without a bound


NOTHING = Account(shares=[], month=0.0, budget=None)


def ask(
    outputs: StackOutputs, timeout_s: float, since: float = 0, run: str | None = None
) -> Account:
    """Ask for the account since a time, in s since 1970; or for the shares of one run only.

    Raises:
        DashboardError: the queue does not answer.
        FieldError: it does not answer as a queue does.
    """
    from trainyard.client.dashboard import Dashboard  # noqa: PLC0415 - slow, and often not needed

    chosen = {} if run is None else {"run": run}
    found = Dashboard(outputs).get("/api/queue/cost", timeout_s, MOST_MIB, since=since, **chosen)
    return Account(
        shares=[_share(each) for each in fields.typed(found, "shares", list)],
        month=fields.amount(found, "month"),
        budget=json_values.number(found["budget"]),
    )


def shortly(outputs: StackOutputs, since: float = 0, run: str | None = None) -> Account:
    """Do the same in passing; NOTHING without a queue, and where it does not answer."""
    if not outputs.queue:
        return NOTHING
    from trainyard.client.dashboard import DashboardError  # noqa: PLC0415 - as above

    try:
        return ask(outputs, SHORT_S, since, run)
    except (DashboardError, *fields.FAULTS):
        return NOTHING


def month(outputs: StackOutputs) -> str:
    """Return what this month has cost, and of what budget; "" where no price is known."""
    account = shortly(outputs, since=time.time() - AN_HOUR_S)  # that of shares, which nobody needs
    if not account.month and account.budget is None:
        return ""
    return f"{account.month:.2f} $" + (
        "" if account.budget is None else f" of {account.budget:g} $"
    )


def table(shares: Iterable[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """Add shares up by one of TEXTS; the most expensive first, days in their order."""
    sums = defaultdict[str, list[float]](lambda: [0.0] * len(AMOUNTS))
    for each in shares:
        idle = not each["job"] and by != "day"
        for index, name in enumerate(AMOUNTS):
            sums[IDLE if idle else each[by]][index] += each[name]
    order = sorted(sums.items()) if by == "day" else sorted(sums.items(), key=lambda e: -e[1][-1])
    return [
        {by: key, **{n: round(v, 2) for n, v in zip(COLUMNS, value, strict=True)}}
        for key, value in order
    ]


def of_runs(account: Account) -> dict[str, float]:
    """Return what each run has cost, in $."""
    found = defaultdict[str, float](float)
    for each in account.shares:
        found[each["run"]] += each["cost"]
    return found


def of_run(outputs: StackOutputs, run: RunRecord) -> RunRecord:
    """Return a run with what it has cost until now."""
    return added([run], of_runs(shortly(outputs, run=run.name)))[0]


def added(records: Iterable[RunRecord], known: Mapping[str, float]) -> list[RunRecord]:
    """Return runs with what they have cost until now; `known` is as `of_runs` returns it.

    A queue forgets old jobs, and the records of a run lack its last minutes: the larger one counts.
    """
    return [
        replace(run, cost=max(known[run.name], run.cost or 0.0)) if known.get(run.name) else run
        for run in records
    ]


def _share(found: Any) -> dict[str, Any]:
    texts = {name: fields.typed(found, name, str) for name in TEXTS}
    return texts | {name: fields.amount(found, name) for name in AMOUNTS}
