"""`train runs`."""

from trainyard.client.command import Json, Outputs, Stack
from trainyard.client.console import print_table
from trainyard.client.selection import Limit, Mine, OfStatus, Selection, Since, User


def runs(
    limit: Limit = None,
    status: OfStatus = "",
    user: User = "",
    mine: Mine = False,
    since: Since = "",
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """List the runs in the store, newest first, with their last figures."""
    from trainyard.client import api, rows

    found = api.runs(stack, outputs, Selection(status, user, mine, since, limit))
    shown, columns = rows.table_of_runs(found)
    print_table(
        found if as_json else shown, columns, as_json=as_json, whole=("run",), empty=rows.NO_RUNS
    )
