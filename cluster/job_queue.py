"""The queue of jobs: it keeps submissions, and starts each at the head when it is its turn.

It speaks Ray's Jobs API with the head's token, and passes all else on to the head's dashboard. So
where it runs, its address is the stack's address for jobs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pulumi
from pydantic import Field

import node
from cluster import ray_node
from cluster.descriptor import Component, Descriptor, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import Fault, Items, Meaning, Model, Says, matching, number, setting
from cluster.replica import STORE, source_of
from cluster.service import HealthCheck, Port, Service, Volume
from trainyard.access import outputs

SERVICE = "queue"
PORT = "queuePort"
RULES, DATABASE = "queueRules", "queueDatabase"
SETTINGS_FILE = "queue.json"  # a secret: it has the token
SCRIPT = "trainyard_queue.py"  # beside the modules, so Python finds these first
START = "import runpy\n\nrunpy.run_module('trainyard.queue', run_name='__main__')\n"
DATA = Volume(name="data", keep=True)
# What the service imports of the library, for machines that lack it.
MODULES = (
    *("__init__.py", "failpoints.py", "packing.py", "yielding.py", "queue/**/*.py"),
    *("dev_session/__init__.py", "dev_session/messages.py", "json_values.py", "errors.py"),
    *("tracking/__init__.py", "tracking/run_folder.py"),
    *(f"store/{name}.py" for name in STORE),
)
NAME = re.compile(r"[^@*\s].*")  # of a user or a group
Users = Annotated[Items[str], Says("must be an array of names of users", "write it as [eva, ole]")]


class Bounds(Model):
    """The most that a user or a group may have: GPUs at a time, and GPU-hours in seven days."""

    gpus: Annotated[float | None, number(0, 10**6)] = None
    gpu_hours_week: Annotated[float | None, number(0, 10**6)] = None


class LowUse(Model):
    """When the GPUs of a running job count as unused.

    Attributes:
        percent: use of each GPU, below which it counts as unused; 0: never.
        minutes: of low use, after which the user is told.
        stop_minutes: and after which the job is stopped, with a checkpoint; 0: never.
    """

    percent: Annotated[float, number(0, 100)] = 5
    minutes: Annotated[float, number(1, 9999)] = 30
    stop_minutes: Annotated[float, number(0, 9999)] = 0

    def faults(self) -> Iterator[Fault]:
        """Yield a stop before which nobody is told."""
        if 0 < self.stop_minutes <= self.minutes:
            bound = f"must be more than minutes ({self.minutes:g}), so that the user is told before"
            yield Fault("stopMinutes", bound, "set {key} higher, or to 0 for never")


class QueueRules(Model):
    """The order of the queue.

    Attributes:
        half_life_days: after which use counts half in the fair share.
        backfill: whether later jobs fill holes that delay nobody.
        preempt: whether jobs that resume make room for those of higher priority.
        groups: names of users, by group.
        quotas: bounds by user, "*" for all others; by "@GROUP" for its users together.
        hourly_cost: the price of each node that is not rented, in $ an hour.
        monthly_budget: what all nodes may cost in a month, in $. Once they have cost it, the queue
            refuses submissions. 0 sets no bound.
        low_use: which jobs leave their GPUs unused.
    """

    half_life_days: Annotated[float, number(0.01, 365)] = 7
    backfill: bool = True
    preempt: bool = True
    groups: Annotated[
        dict[str, Users], Meaning("must be an object of users by group", "write it as {lab: [eva]}")
    ] = Field(default={})
    quotas: Annotated[
        dict[str, Bounds],
        Meaning("must be an object of bounds by user", "write it as {user: {gpus: 2}}"),
    ] = Field(default={})
    hourly_cost: Annotated[float, number(0, 10**6)] = 0
    monthly_budget: Annotated[float, number(0, 10**9)] = 0
    low_use: LowUse = Field(default=LowUse())

    def faults(self) -> Iterator[Fault]:
        """Yield names that are of no user, and quotas of groups that do not exist."""
        named = [("groups", each) for each in self.groups]
        named += [(f"groups.{group}", each) for group in self.groups for each in self.groups[group]]
        groups = {f"@{each}" for each in self.groups}
        named += [("quotas", each) for each in self.quotas if each not in {"*", *groups}]
        for key, name in named:
            if not NAME.fullmatch(name):
                bound = "is not a group" if name[:1] == "@" else "is not a name of a user or group"
                known = f"; {RULES}.groups has {', '.join(sorted(groups)) or 'none'}"
                action = "write a name without @, * or a blank before it; only quotas have @GROUP"
                yield Fault(key, bound + known, action, name)


class JobQueue(Component):
    """The service."""

    def declare(self, stack: Stack) -> None:
        """Declare it, and have clients send jobs to it."""
        runtime, port, settings = stack.runtime, stack.port(PORT), stack.settings.of_services
        rules: QueueRules = settings[RULES]
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=port,
            head=join("http://", runtime.address(ray_node.HEAD, stack.port("dashboardPort"))),
            token=stack.token,
            data=runtime.volume(SERVICE, DATA),
            address=runtime.address(SERVICE, port),
            database=settings[DATABASE],
            nodes=stack.outputs[outputs.NODES],
            store=source_of(stack.storage),
            halfLifeDays=rules.half_life_days,
            backfill=rules.backfill,
            preempt=rules.preempt,
            hourlyCost=rules.hourly_cost,
            monthlyBudget=rules.monthly_budget,
            lowUse=rules.low_use.model_dump(),
            groups=rules.groups,
            quotas={
                "" if user == "*" else user: bounds.set_fields()
                for user, bounds in rules.quotas.items()
            },
        )
        if rules.hourly_cost:  # the clouds' prices are in the preview already
            known["nodes"].apply(
                lambda nodes: pulumi.log.info(own_price(nodes, rules.hourly_cost), self)
            )
        runtime.place(
            Service(
                name=SERVICE,
                program=DESCRIPTOR.program,
                script=SCRIPT,
                arguments=[runtime.file(SERVICE, SETTINGS_FILE)],
                files={SCRIPT: START, **module_files()},
                secrets={SETTINGS_FILE: pulumi.Output.secret(known.apply(json.dumps))},
                volumes=[DATA],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=5,
            ),
            self.child,
        )
        stack.outputs[outputs.DASHBOARD_URL] = join("http://", runtime.public(SERVICE, port))
        stack.outputs[outputs.QUEUE] = "true"


def own_price(nodes: Sequence[Mapping[str, Any]], price: float) -> str:
    """Return what all nodes that are not rented cost, each at a price in $ an hour."""
    count = sum(not each["hourlyCost"] for each in nodes)
    return f"{count} nodes that are not rented: {count * price:.2f} $/h ({RULES}.hourlyCost)"


def module_files() -> dict[str, str]:
    """Return the service's modules, by their paths below its folder of files."""
    root = Path(node.__file__).parents[1]
    found = sorted(path for each in MODULES for path in (root / "trainyard").glob(each))
    return {path.relative_to(root).as_posix(): path.read_text() for path in found}


def jobs_address(stack: Stack) -> pulumi.Input[str]:
    """Return host:port at which other services find all jobs: the queue's, or the head's."""
    head = stack.runtime.address(ray_node.HEAD, stack.port("dashboardPort"))
    return stack.address(SERVICE, PORT) or head


DESCRIPTOR = Descriptor(
    program="ray",  # whose environment, or image, has what it needs
    service=SERVICE,
    declare=partial(JobQueue, SERVICE),
    source=Source.ENVIRONMENT,
    ports=(PortSetting(PORT, 8270, "Queue of jobs: then the address for jobs and Ray's pages"),),
    limit=Limit(memory_mib=1024, processes=256),
    shared=True,  # jobs on other machines ask it what they cost
    settings={
        "queue": (
            bool,
            setting(
                False,
                "Whether jobs wait in a queue that outlives the head, and start in its order",
                see="queue.md",
            ),
        ),
        RULES: (
            QueueRules,
            setting(
                QueueRules(),
                "Order of the queue: `{halfLifeDays, backfill, preempt, quotas: {USER: {gpus, "
                "gpuHoursWeek}}, groups: {GROUP: [USER]}, hourlyCost, monthlyBudget, lowUse: "
                "{percent, minutes, stopMinutes}}`; the user `*` stands for all others, `@GROUP` "
                "for its users together; $ an hour of each node that is not rented, $ a month; "
                "use of GPUs below which a job is named and stopped",
                see="queue.md",
            ),
        ),
        DATABASE: (
            Annotated[
                str,
                matching(
                    r"(postgresql\+\w+://\S+)?",
                    "must be a URL of SQLAlchemy for PostgreSQL, such as "
                    "postgresql+psycopg://USER:PASSWORD@HOST/NAME",
                    f"set it with `train config set --secret {DATABASE}`, or remove it",
                    secret=True,
                ),
            ],
            setting(
                "",
                "Database of the queue, as a secret: PostgreSQL. Default: a file of its own",
                see="queue.md",
                secret=True,
            ),
        ),
    },
    wanted=lambda settings: bool(settings.of_services["queue"]),
)
