"""`train watch`: nodes, jobs and runs of a stack on the terminal, drawn again every few seconds."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from trainyard.access import terminal
from trainyard.client import console, info
from trainyard.client.command import TERMINATED, Outputs, Stack, reach_jobs, warn_of_end
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainyard.client.job_server import JobServer
    from trainyard.client.outputs import StackOutputs

EVERY_S = 3.0
NOT_WELL = "not well"
MOST = 20  # jobs, and runs: the newest
FRAME = 3  # lines of a part without its rows: an empty one, its title, those of its columns


@dataclass
class Part:
    """A table, or why there is none."""

    title: str
    columns: Sequence[str]  # the most important first
    whole: Sequence[str]  # those that are never cut
    rows: list[dict[str, Any]] = field(default_factory=list)  # values by column, the newest first
    fault: str = ""  # why the rows are not known


def watch(context: typer.Context, stack: Stack = None, outputs: Outputs = None) -> None:
    """Show nodes, jobs and runs, and draw them again every few seconds, until Ctrl-C."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    if not sys.stdout.isatty():
        parts = look(server, stack_outputs)
        for part in parts:
            say(part.title + (f": {part.fault}" if part.fault else ""))
            console.print_table(part.rows, part.columns, as_json=False)
        warn("this was one look: `train watch` draws again on a terminal only")
        warn_of_end(stack_outputs)
        if parts[0].title == NOT_WELL:
            raise typer.Exit(1)
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        with terminal.screen() as live:
            while True:
                parts = look(server, stack_outputs)
                live.update(_drawn(parts, stack_outputs, *live.console.size), refresh=True)
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return


def look(server: JobServer, outputs: StackOutputs) -> list[Part]:
    """Return what `train info`, `train list` and `train runs` show; a part that fails says why.

    The first ones are then the services that are not well.
    """
    from trainyard.client import health, rows
    from trainyard.client.dashboard import DashboardError

    nodes = Part("nodes", rows.NODES, ("node",))
    jobs = Part("jobs", rows.JOBS, ("job", "run"))
    runs = Part("runs", rows.RUNS, ("run",))

    def of_runs() -> list[dict[str, Any]]:
        names = dict.fromkeys(row["run"] for row in jobs.rows if row["run"])
        found = rows.of_runs(outputs, [*names])
        shown, runs.columns = rows.table_of_runs(found)
        return shown

    for part, ask in (
        (nodes, lambda: rows.of_nodes(outputs)),
        (jobs, lambda: rows.of_jobs(server.jobs(), outputs)[:MOST]),
        (runs, of_runs),
    ):
        try:
            part.rows = ask()
        except (ClientError, DashboardError) as error:
            part.fault = f"not known: {error}"
    failed = any(part.fault for part in (nodes, jobs, runs))
    faults = (health.of(outputs) or []) if failed else []
    return [*(Part(NOT_WELL, (), (), fault=each) for each in faults), nodes, jobs, runs]


def _drawn(parts: Sequence[Part], outputs: StackOutputs, width: int, height: int) -> RenderableType:
    """The parts, each with a share of the height."""
    from rich.console import Group
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(terminal.clean(text), style=style, no_wrap=True, overflow="ellipsis")

    drawn: list[RenderableType] = [
        line(f"stack {outputs.stack}, {datetime.now().astimezone():%H:%M:%S}, Ctrl-C ends", "bold")
    ]
    if ending := info.ends_soon(outputs):
        drawn.append(line(ending, "yellow"))
    room = height - len(drawn)
    for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
        share = max(room // left - FRAME, 1)
        shown = part.rows[:share]
        more = len(part.rows) - len(shown)
        drawn += [line(""), line(part.title + (f", {more} more" if more else ""), "bold cyan")]
        used = FRAME
        if part.fault or not part.rows:
            drawn.append(line(part.fault or "none", "yellow" if part.fault else "dim"))
        else:
            columns = [name for name in part.columns if name != "waits"]
            cells = console.texts(shown, columns, short=True)
            table, _ = terminal.table(
                columns, cells, width, whole=part.whole, styles=console.STYLES
            )
            drawn.append(table)
            used += len(shown)
        room -= used
    waits = [row for part in parts for row in part.rows if row.get("waits")]
    drawn += [line(f"{row['job']}: {row['waits']}", "yellow") for row in waits[: max(room, 0)]]
    return Group(*drawn)


def _end(*_: object) -> NoReturn:
    raise SystemExit(TERMINATED)  # through the screen's end, which restores the terminal
