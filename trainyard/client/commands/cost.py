"""`train cost`."""

import enum
from collections import defaultdict
from typing import Annotated, Any

import typer

from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_table, say
from trainyard.client.errors import ClientError
from trainyard.client.selection import Since, began

IDLE = "(idle)"


class By(enum.StrEnum):
    """What the table has a row of."""

    user = enum.auto()
    run = enum.auto()
    job = enum.auto()
    day = enum.auto()


def cost(
    context: typer.Context,
    by: Annotated[By, typer.Option(help="A row for each of these.")] = By.user,
    since: Since = "30d",
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Show who used the machines of a stack with a queue, and what that cost."""
    from trainyard.client import fields, health
    from trainyard.client import outputs as contract
    from trainyard.client.dashboard import Dashboard, DashboardError, RefusedError

    stack_outputs = reach(context, contract.read(stack, outputs))
    dashboard = Dashboard(stack_outputs)
    begun = began(since) / 1000
    try:
        found = dashboard.get("/api/queue/cost", since=begun)
        rows = _table([_share(each) for each in found], by.value)
    except RefusedError:
        raise ClientError(
            f"stack {stack_outputs.stack!r} keeps no account: run `train config set queue true`, "
            "then `make up` (docs/queue.md)"
        ) from None
    except (DashboardError, fields.FieldError, TypeError) as error:
        raise ClientError(
            f"{dashboard.url} does not tell what was used ({error}): {health.remedy(stack_outputs)}"
        ) from None
    columns = (by.value, "gpu_hours", "cpu_hours", "cost")
    empty = f"nothing was seen since {since} ago"
    print_table(rows, columns, as_json=as_json, whole=(by.value,), empty=empty)
    if not as_json and rows:
        total = sum(float(row["cost"]) for row in rows)
        say(f"{total:.2f} $ in all; {IDLE} is what no job asked for")


def _share(found: Any) -> dict[str, Any]:
    from trainyard.client import fields

    texts = {name: fields.typed(found, name, str) for name in By}
    return texts | {name: fields.amount(found, name) for name in ("gpuHours", "cpuHours", "cost")}


def _table(shares: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Add shares up; the most expensive first, days in their order."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for each in shares:
        idle = not each["job"] and by != By.day
        for index, name in enumerate(("gpuHours", "cpuHours", "cost")):
            sums[IDLE if idle else each[by]][index] += each[name]
    order = sorted(sums.items()) if by == By.day else sorted(sums.items(), key=lambda e: -e[1][2])
    names = ("gpu_hours", "cpu_hours", "cost")
    return [
        {by: key, **{n: round(v, 2) for n, v in zip(names, value, strict=True)}}
        for key, value in order
    ]
