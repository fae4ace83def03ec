"""The answers to the page's questions, each from the functions behind a command of `train`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from trainyard.access import typed
from trainyard.access.terminal import clean
from trainyard.client import costs, history, idle, info, unreachable, waiting
from trainyard.client import serve as serving
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError, DownError
from trainyard.client.job_server import ACTIVE, Job
from trainyard.client.state import ClusterState
from trainyard.client.ui import commands, live, rows, sweeps, table
from trainyard.client.ui.commands import Action, Commands
from trainyard.client.ui.stacks import Stack, Stacks
from trainyard.store.objects import Store

MOST_EXPLAINED = 20  # jobs of a page
DAYS = timedelta(days=30)

T = TypeVar("T")

Query = dict[str, str]
Answer = dict[str, Any]


class Answers:
    """Answers questions about stacks; every method may raise ClientError or DashboardError.

    If it is `read_only`, commands are only shown.
    """

    def __init__(self, stacks: Stacks, running: Commands, *, read_only: bool = False) -> None:
        """Asks nothing yet."""
        self.stacks = stacks
        self._commands = running
        self.read_only = read_only
        self._here = Path.cwd()

    def session(self) -> Answer:
        """Return what the page needs first."""
        return {"stacks": self.stacks.names(), "read_only": self.read_only}

    def row(self, query: Query) -> Answer:
        """Return one stack in a line: one that is down says so."""
        return self._row(self.stacks.get(query["stack"]))

    def all_commands(self, _: Query) -> Answer:
        """Return the commands that buttons have started."""
        return {"rows": self._commands.all()}

    def stack(self, query: Query) -> Answer:
        """Return one stack: its row, addresses, the next commands, and buttons."""
        stack = self.stacks.get(query["stack"])
        outputs = stack.outputs()
        ends_idle = idle.summary(outputs) if idle.watch(outputs) else ""
        return {
            **self._row(stack),
            "addresses": info.addresses(outputs, idle=ends_idle),
            "next": info.next_steps(outputs),
            "actions": self._buttons(commands.of_stack(stack.name)),
        }

    def nodes(self, query: Query) -> Answer:
        """Return what the nodes do now, and alerts."""
        outputs = self.stacks.get(query["stack"]).outputs()
        found: Answer = {"rows": live.nodes(outputs), "alerts": None, "fault": ""}
        try:
            found["alerts"] = live.alerts(outputs)
        except ClientError as error:
            found["fault"] = message(error, outputs.stack)
        return found

    def jobs(self, query: Query) -> Answer:
        """Return a page of the jobs' table; active ones say why they wait."""
        stack = self.stacks.get(query["stack"])
        everything = stack.jobs()
        submitted = {job.submission_id: job for job in everything if job.submitted}
        found = table.page([rows.of_job(job) for job in submitted.values()], table.View.of(query))
        outputs = stack.outputs()
        reasons = waiting.Reasons(everything, outputs, ClusterState(outputs))
        explained = 0
        for row in found["rows"]:
            if row["status"] in ACTIVE and explained < MOST_EXPLAINED:
                job = submitted[row["job"]]
                row["waits"] = rows.waits(job, reasons, stack.name) or waiting.told(job)
                explained += 1
        return found

    def job(self, query: Query) -> Answer:
        """Return one job in full, with its buttons."""
        stack = self.stacks.get(query["stack"])
        everything = stack.jobs()
        job = next((job for job in everything if job.submission_id == query["job"]), None)
        if job is None or not job.submission_id:
            raise ClientError(
                f"the cluster has no job {query['job'][:80]!r}: `train list` shows the jobs"
            )
        outputs = stack.outputs()
        reasons = waiting.Reasons(everything, outputs, ClusterState(outputs))
        facts = rows.in_full(job, reasons, stack.name)
        return facts | {"actions": self._buttons(commands.of_job(stack.name, job))}

    def runs(self, query: Query) -> Answer:
        """Return a page of the runs' table, and how far the first look at the store is."""
        stack = self.stacks.get(query["stack"])
        cache = stack.runs()
        records, reading = cache.all()
        records = costs.added(records, costs.of_runs(self._account(stack)))
        found = rows.of_runs(records, self._known_jobs(stack), cache.outputs)
        names = history.figures((row["figures"] for row in found), rows.MOST_KEYS)
        return table.page(found, table.View.of(query)) | {"reading": reading, "figures": names}

    def compared(self, query: Query) -> Answer:
        """Return some runs in detail (`runs`, names with commas), and how their settings differ."""
        stack = self.stacks.get(query["stack"])
        cache = stack.runs()
        names = list(dict.fromkeys(filter(None, query.get("runs", "").split(","))))
        if len(names) > rows.MOST_COMPARED:
            raise ClientError(
                f"{len(names)} runs are too many curves: choose at most {rows.MOST_COMPARED}"
            )
        jobs = self._known_jobs(stack)
        found = []
        known = costs.of_runs(self._account(stack))
        for record in costs.added(map(cache.get, names), known):
            [row] = rows.of_runs([record], jobs, cache.outputs)
            own = [job for job in jobs if job.submitted and job.run == record.name]
            actions = commands.of_run(stack.name, record.name, own, servable=not record.unservable)
            detail = rows.in_detail(record, row, {job.submission_id for job in own})
            found.append(detail | {"actions": self._buttons(actions)})
        keys = dict.fromkeys(key for each in found for key in each["config"])
        differ = [key for key in keys if len({repr(each["config"].get(key)) for each in found}) > 1]
        return {"runs": found, "differ": differ}

    def cost(self, query: Query) -> Answer:
        """Return what this month has cost, and the last 30 days by user and by day.

        Users who have a token but no use are listed too, last, and when each was last seen.
        """
        stack = self.stacks.get(query["stack"])
        account = self._account(stack)
        first = (datetime.now(UTC) - DAYS).date().isoformat()
        recent = [each for each in account.shares if each["day"] >= first]
        days, used = (costs.table(recent, each) for each in ("day", "user"))
        known = {each["name"]: each for each in _unless_away(stack.users, list[dict[str, str]]())}
        unused = [{"user": name} for name in sorted(known.keys() - {each["user"] for each in used})]
        users = [row | {"seen": known.get(row["user"], {}).get("seen")} for row in used + unused]
        return {"month": account.month, "budget": account.budget, "users": users, "days": days}

    def files(self, query: Query) -> Answer:
        """Return the files of a run (`run`)."""
        return rows.of_files(self.stacks.get(query["stack"]).runs().store, query.get("run", ""))

    def file(self, query: Query) -> bytes:
        """Return a file of a run (`run`, `name`)."""
        store = self.stacks.get(query["stack"]).runs().store
        return rows.file(store, query.get("run", ""), query.get("name", ""))

    def sweeps(self, query: Query) -> Answer:
        """Return the sweeps."""
        return {"rows": sweeps.listed(self._here, self._searches(query)[1])}

    def sweep(self, query: Query) -> Answer:
        """Return the points of one sweep (`kind`, `sweep`), and what ranks them."""
        kind, name = query.get("kind", ""), query.get("sweep", "")
        return sweeps.points(kind, name, self._here, *self._searches(query))

    def services(self, query: Query) -> Answer:
        """Return the services, with their buttons."""
        stack = self.stacks.get(query["stack"])
        outputs = stack.outputs()
        found = serving.services(outputs)
        for row in found:
            row["actions"] = self._buttons(commands.of_service(stack.name, row["service"]))
        return {"rows": found}

    def start(self, query: Query) -> Answer:
        """Start a button's `command`, as it was shown: `stack`, and the `job`, `run` or `service`.

        A run may have several jobs, and so several buttons of one name.
        """
        stack = self.stacks.get(query.get("stack", ""))
        asked = query.get("command", "")
        for offered in self._offered(stack, query):
            if offered.shown == asked:
                return self._commands.start(stack.name, offered).described()
        raise ClientError(f"{asked[:80]!r} is not possible now: load the page again")

    def _offered(self, stack: Stack, query: Query) -> list[Action]:
        if "job" in query:
            found = [job for job in stack.jobs() if job.submission_id == query["job"]]
            return [action for job in found for action in commands.of_job(stack.name, job)]
        if "run" in query:
            record = stack.runs().get(query["run"])
            jobs = [job for job in self._known_jobs(stack) if job.run == record.name]
            return commands.of_run(stack.name, record.name, jobs, servable=not record.unservable)
        if "service" in query:
            known = [row["service"] for row in serving.services(stack.outputs())]
            return (
                commands.of_service(stack.name, query["service"])
                if query["service"] in known
                else []
            )
        return commands.of_stack(stack.name)

    def _row(self, stack: Stack) -> Answer:
        drift = self._commands.last_drift(stack.name)
        row: Answer = {"stack": stack.name, "health": "up", "message": "", "drift": drift}
        try:
            outputs = stack.outputs()
            jobs = stack.jobs()
        except (ClientError, DashboardError) as error:
            down = isinstance(error, DownError)
            return row | {
                "health": "down" if down else "no answer",
                "message": message(error, stack.name),
            }
        return row | {
            "attached": outputs.attached,
            "owner": outputs.owner,
            "nodes": len(outputs.nodes),
            "active": sum(job.status in ACTIVE for job in jobs),
            "hourly_cost": rows.hourly_cost(outputs),
            "ends": outputs.expires_at.timestamp() * 1000 if outputs.expires_at else 0,
            "soon": info.ends_soon(outputs),
        }

    def _buttons(self, actions: list[Action]) -> list[Answer]:
        return [
            {
                "action": each.action,
                "command": each.shown,
                "question": each.question,
                "runs": bool(each.arguments) and not self.read_only,
            }
            for each in actions
        ]

    def _known_jobs(self, stack: Stack) -> list[Job]:
        """The jobs; none when no cluster answers, since the store outlives it."""
        return _unless_away(stack.jobs, [])

    def _account(self, stack: Stack) -> costs.Account:
        return _unless_away(stack.account, costs.NOTHING)

    def _searches(self, query: Query) -> tuple[Store | None, dict[str, list[str]]]:
        """A stack's store and its searches; none if it does not answer: Hydra's sweeps are here."""
        nothing: tuple[Store | None, dict[str, list[str]]] = (None, {})

        def asked() -> tuple[Store | None, dict[str, list[str]]]:
            cache = self.stacks.get(query["stack"]).runs()
            return cache.store, cache.trials()

        return _unless_away(asked, nothing)


def message(error: Exception, stack: str) -> str:
    """Return an error as the command line would print it."""
    told = error if isinstance(error, ClientError) else unreachable.explained(error) or error
    return typed.commands(clean(told), stack or typed.DEFAULT_STACK)


def _unless_away(ask: Callable[[], T], otherwise: T) -> T:
    try:
        return ask()
    except (ClientError, DashboardError):
        return otherwise
