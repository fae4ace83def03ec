"""`train cost`."""

import enum
from typing import Annotated

import typer

from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_table, say
from trainyard.client.errors import ClientError
from trainyard.client.selection import Since, began


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
    from trainyard.client import costs, fields, health
    from trainyard.client import outputs as contract
    from trainyard.client.dashboard import TIMEOUT_S, DashboardError, RefusedError

    stack_outputs = reach(context, contract.read(stack, outputs))
    begun = began(since) / 1000
    try:
        rows = costs.table(costs.ask(stack_outputs, TIMEOUT_S, begun).shares, by)
    except RefusedError:
        raise ClientError(
            f"stack {stack_outputs.stack!r} keeps no account: run `train config set queue true`, "
            "then `make up` (docs/queue.md)"
        ) from None
    except (DashboardError, *fields.FAULTS) as error:
        raise ClientError(
            f"{stack_outputs.dashboard_url} does not tell what was used ({error}): "
            f"{health.remedy(stack_outputs)}"
        ) from None
    columns = (by.value, *costs.COLUMNS)
    empty = f"nothing was seen since {since} ago"
    print_table(rows, columns, as_json=as_json, whole=(by.value,), empty=empty)
    if not as_json and rows:
        total = sum(float(row["cost"]) for row in rows)
        say(f"{total:.2f} $ in all; {costs.IDLE} is what no job asked for")
