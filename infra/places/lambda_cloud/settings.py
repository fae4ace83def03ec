"""Settings of machines rented from Lambda Cloud: which ones, their largest cost, and their end.

Deliberately absent: any access to the account.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from cluster.model import Fault, Items, Meaning, Model, Only, matching, number, setting, whole
from infra.machines.holdings import Account
from infra.machines.source import MAX_MACHINES, Cloud, FleetSettings, MachineSource
from infra.places.lambda_cloud import API_KEY
from infra.settings.nodes import GROUPS, Group

SETTING = "lambdaCloud"
INSTANCE = "instanceId"
# As the API takes them; nothing else reaches a command line, a file or another machine.
FILE_SYSTEM = matching(
    r"[a-zA-Z][0-9a-zA-Z-]{0,59}",
    "must be letters, digits and hyphens after a letter, at most 60",
    "choose such a name",
)
MOUNT_POINT = matching(
    r"(?:/home|/lambda/nfs|/data)(?:/[A-Za-z0-9-]+)*",
    "must be a path below /home, /lambda/nfs or /data of letters, digits and -",
    "write one such as /lambda/nfs/data",
)
OF_NAME = "must be a name of lowercase letters, digits and _ or -"


class Candidate(Model):
    """A type of instance; a region of "" is any."""

    type: Annotated[str, matching(r"[a-z0-9_]{1,64}", OF_NAME, "such as gpu_1x_a10")]
    region: Annotated[str, matching(r"[a-z0-9-]{1,32}", OF_NAME, "such as us-east-1")] = ""


class LambdaCloud(Model, FleetSettings):
    """Instances to be rented; names and units are those of docs/configuration.md.

    Attributes:
        candidates: types and regions in order.
        gpus: at least so many in an instance; used without candidates.
        gpu_memory_gib: memory of each GPU at least, 0 for any.
        max_hourly_cost: $ for all instances, 0 for no bound.
        budget: $ for all instances over ttl_hours, or the reservation; 0 for no bound.
        ttl_hours: after which the instances end themselves, 0 for never, or for a reservation.
        head_node_name: name of the head's instance in the account; "" for that of the others.
        file_systems: mount points by name.
    """

    instances: Annotated[int, whole(1, MAX_MACHINES)] = 1
    candidates: Annotated[
        Items[Candidate], Meaning("must be a list", "write [{type, region}]")
    ] = ()
    gpus: Annotated[int, whole(1, 64, or_zero=True)] = 0
    gpu_memory_gib: Annotated[int, whole(1, 1024, or_zero=True)] = 0
    max_hourly_cost: Annotated[float, number(0, 1e6)] = 0
    budget: Annotated[float, number(0, 1e7)] = 0
    ttl_hours: Annotated[float, number(0, 24 * 365)] = 0
    ssh_key_name: Annotated[
        str,
        matching(
            r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}",
            "must be at most 64 letters, digits and . _ @ -",
            "set {key} to one",
        ),
    ] = "trainyard"
    head_node_name: Annotated[
        str,
        matching(
            r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?",
            "must be at most 64 letters, digits and . _ -",
            "write one such as ray_head_node",
        ),
    ] = ""
    boot_timeout_minutes: Annotated[int, whole(1, 180)] = 30
    file_systems: Annotated[
        dict[Annotated[str, FILE_SYSTEM], Annotated[str, MOUNT_POINT]],
        Meaning("must be an object", "write {name: /mount}"),
    ] = Field(default={})

    def faults(self) -> Iterator[Fault]:
        """Yield fields that do not go together."""
        if bool(self.candidates) == bool(self.gpus):
            bound, key = "needs either candidates or gpus", SETTING
            action = f"set {key}.candidates to [{{type: gpu_1x_a10, region: us-east-1}}] or "
            yield Fault("", bound, f"{action}{key}.gpus")
        paths = list(self.file_systems.values())
        for name, path in self.file_systems.items():
            if paths.count(path) > 1:
                bound = "is where another file system is mounted"
                yield Fault(f"fileSystems.{name}", bound, "choose another path", path)

    @property
    def count(self) -> int:
        return self.instances

    @property
    def ends_itself(self) -> bool:
        """With ttlHours each instance has an end, and a timer unless Ray's launcher starts Ray."""
        return self.ttl_hours > 0

    def end_faults(self, *, reserved: bool) -> Iterator[Fault]:
        """Yield two ends, or a budget without one."""
        if self.ttl_hours and reserved:
            bound = "is a second end, and reservation is set"
            yield Fault(f"{SETTING}.ttlHours", bound, "remove one of them")
        if self.budget and not (self.ttl_hours or reserved):
            bound = "needs an end: without one the total cost is unlimited"
            yield Fault(f"{SETTING}.budget", bound, f"set {SETTING}.ttlHours, or reservation")

    def launcher_faults(self) -> Iterator[Fault]:
        """Yield a budget: without a timer on the instances nothing keeps it."""
        if self.budget:
            bound = "bounds nothing with startRay = false: no instance ends itself"
            yield Fault(f"{SETTING}.budget", bound, "remove budget, or startRay", self.budget)

    def group_faults(self, groups: Sequence[Group]) -> Iterator[Fault]:
        """Yield anything but one group that grows: all instances are alike."""
        for group in groups:
            if not group.growth:
                bound = "needs max: rented machines that are always there are its instances"
                action = f"set max in place of count, or set {SETTING}.instances"
                yield Fault(f"{GROUPS}.{group.name}", bound, action, group.count)
        if len(groups) > 1:
            names = ", ".join(group.name for group in groups)
            bound = "must be one group: all instances of a stack are alike"
            yield Fault(GROUPS, bound, "keep one of them", names)
        if groups and (most := self.most(groups)) > MAX_MACHINES:
            bound = f"must be {MAX_MACHINES} at most, {SETTING}.instances and max together"
            yield Fault(GROUPS, bound, "lower max", f"{most} machines")


def _account(api_key: str | None) -> Account:
    # Not at the top: stacks that rent nothing would pay for an HTTP client.
    from infra.places.lambda_cloud.account import LambdaAccount  # noqa: PLC0415

    return LambdaAccount(api_key)


SOURCE = MachineSource(
    setting=SETTING,
    declared=Annotated[LambdaCloud | None, Only(("process", "docker"))],
    field=setting(
        None,
        "Instances to rent from Lambda Cloud (process; one of them also docker)",
        see="#lambda-cloud",
    ),
    fleet=lambda cloud: cloud,
    cloud=Cloud(
        title="Lambda",
        api_key=API_KEY,
        api_key_text="Lambda Cloud's API key, as a secret; `LAMBDA_API_KEY` and "
        "`LAMBDALABS_API_KEY` take precedence",
        instance=INSTANCE,
        account=_account,
        module="lambda",
    ),
)
