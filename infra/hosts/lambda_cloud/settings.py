"""Settings of machines rented from Lambda Cloud: which ones, their largest cost, and their end.

Deliberately absent: any access to the account.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.hosts.fleet import MAX_MACHINES, Cloud, Fleet, FleetArgs, Source
from infra.hosts.holdings import Account
from infra.node_settings import GROUPS, NodeGroup
from infra.reader import Reader
from infra.setting_fields import amount, known, text, whole

SETTING = "lambdaCloud"
API_KEY = "lambdaApiKey"
INSTANCE = "instanceId"
# As the API takes them; nothing else reaches a command line, a file or another machine.
MOUNT_POINT = re.compile(r"(?:/home|/lambda/nfs|/data)(?:/[A-Za-z0-9-]+)*", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TYPE = re.compile(r"[a-z0-9_]{1,64}")
REGION = re.compile(r"[a-z0-9-]{1,32}")
FILE_SYSTEM = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]{0,59}")
FIELDS = (
    *("instances", "candidates", "gpus", "gpuMemoryGib", "maxHourlyCost", "budget", "ttlHours"),
    *("sshKeyName", "bootTimeoutMinutes", "fileSystems"),
)


@dataclass(frozen=True, kw_only=True)
class LambdaCloud:
    """Instances to be rented; names and units are those of docs/configuration.md.

    Attributes:
        candidates: types and regions in order; a region of "" is any.
        gpus: at least so many in an instance; used without candidates.
        gpu_memory_gib: memory of each GPU at least, 0 for any.
        max_hourly_cost: $ for all instances, 0 for no bound.
        budget: $ for all instances over ttl_hours, 0 for no bound.
        ttl_hours: after which the instances end themselves, 0 for never.
        file_systems: mount points by name.
    """

    instances: int
    candidates: tuple[Mapping[str, str], ...]
    gpus: int
    gpu_memory_gib: int
    max_hourly_cost: float
    budget: float
    ttl_hours: float
    ssh_key_name: str
    boot_timeout_minutes: int
    file_systems: Mapping[str, str]

    @property
    def count(self) -> int:
        """Number of machines that are always there."""
        return self.instances

    def most(self, groups: Sequence[NodeGroup]) -> int:
        """Largest number of machines."""
        return self.instances + sum(group.count for group in groups if group.growth)

    @property
    def ends_itself(self) -> bool:
        """With ttlHours each instance has a timer, and the key to end itself."""
        return self.ttl_hours > 0

    @property
    def group_sizes(self) -> None:
        """None: instances name no groups, which have their own sizes."""
        return

    def check_launcher(self, reader: Reader) -> None:
        """Note a key of the account that Ray's own launcher would make readable."""
        if self.ttl_hours:
            # A user who runs a job could then become the admin, who may read the account's API key.
            bound = "copies the private key to the head, where ttlHours keeps the account's API key"
            action = f"remove {SETTING}.ttlHours or startRay"
            reader.fault("startRay", "false", bound, action)

    def check_groups(self, reader: Reader, groups: Sequence[NodeGroup]) -> None:
        """Note anything but one group that grows: all instances are alike."""
        for group in groups:
            if not group.growth:
                bound = "needs max: rented machines that are always there are its instances"
                action = f"set max in place of count, or set {SETTING}.instances"
                reader.fault(f"{GROUPS}.{group.name}", group.count, bound, action)
        if len(groups) > 1:
            names = ", ".join(group.name for group in groups)
            bound = "must be one group: all instances of a stack are alike"
            reader.fault(GROUPS, names, bound, "keep one of them")
        if groups and (most := self.most(groups)) > MAX_MACHINES:
            bound = f"must be {MAX_MACHINES} at most, {SETTING}.instances and max together"
            reader.fault(GROUPS, f"{most} machines", bound, "lower max")

    def open(self, args: FleetArgs) -> Fleet:
        """Return the machines to rent."""
        from infra.hosts.lambda_cloud.fleet import LambdaFleet  # noqa: PLC0415

        return LambdaFleet(self, args)


def read(reader: Reader) -> LambdaCloud | None:
    """Return the instances to rent; None for none."""
    key = SETTING
    given = reader.object(key, f"write its fields: {', '.join(FIELDS)}")
    if not given:
        return None
    fields = known(reader, key, given, FIELDS)
    candidates = fields.get("candidates", [])
    if not isinstance(candidates, list):
        reader.fault(f"{key}.candidates", candidates, "must be a list", "write [{type, region}]")
        candidates = []
    gpus = whole(reader, f"{key}.gpus", fields, 1, 64, 0)
    if bool(candidates) == bool(gpus):
        bound = "needs either candidates or gpus"
        action = f"set {key}.candidates to [{{type: gpu_1x_a10, region: us-east-1}}] or {key}.gpus"
        reader.fault(key, given, bound, action)
    ttl = amount(reader, f"{key}.ttlHours", fields, 24 * 365)
    budget = amount(reader, f"{key}.budget", fields, 1e7)
    if budget and not ttl:
        bound = "needs ttlHours: without an end the total cost is unlimited"
        reader.fault(f"{key}.budget", budget, bound, f"set {key}.ttlHours")
    systems = fields.get("fileSystems", {})
    if not isinstance(systems, dict):
        reader.fault(f"{key}.fileSystems", systems, "must be an object", "write {name: /mount}")
        systems = {}
    for name, path in systems.items():
        if not FILE_SYSTEM.fullmatch(name):
            bound = "must be letters, digits and hyphens after a letter, at most 60"
            reader.fault(f"{key}.fileSystems.{name}", name, bound, "choose such a name")
        if not isinstance(path, str) or not MOUNT_POINT.fullmatch(path):
            bound = "must be a path below /home, /lambda/nfs or /data of letters, digits and -"
            action = f"write one such as /lambda/nfs/{name}"
            reader.fault(f"{key}.fileSystems.{name}", path, bound, action)
        elif list(systems.values()).count(path) > 1:
            bound = "is where another file system is mounted"
            reader.fault(f"{key}.fileSystems.{name}", path, bound, "choose another path")
    return LambdaCloud(
        instances=whole(reader, f"{key}.instances", fields, 1, MAX_MACHINES, 1),
        candidates=tuple(
            _candidate(reader, f"{key}.candidates[{index}]", value)
            for index, value in enumerate(candidates)
        ),
        gpus=gpus,
        gpu_memory_gib=whole(reader, f"{key}.gpuMemoryGib", fields, 1, 1024, 0),
        max_hourly_cost=amount(reader, f"{key}.maxHourlyCost", fields, 1e6),
        budget=budget,
        ttl_hours=ttl,
        ssh_key_name=text(
            reader,
            f"{key}.sshKeyName",
            {"sshKeyName": "trainyard", **fields},
            NAME,
            "must be at most 64 letters, digits and . _ @ -",
            "",
        ),
        boot_timeout_minutes=whole(reader, f"{key}.bootTimeoutMinutes", fields, 1, 180, 30),
        file_systems=systems,
    )


def _candidate(reader: Reader, key: str, value: Any) -> Mapping[str, str]:
    fields = known(reader, key, value, ("type", "region"))
    bound = "must be a name of lowercase letters, digits and _ or -"
    return {
        "type": text(reader, f"{key}.type", fields, TYPE, bound, "such as gpu_1x_a10"),
        "region": text(reader, f"{key}.region", fields, REGION, bound, "such as us-east-1")
        if "region" in fields
        else "",
    }


def _account(api_key: str | None) -> Account:
    from infra.hosts.lambda_cloud.holdings import LambdaAccount  # noqa: PLC0415

    return LambdaAccount(api_key)


SOURCE = Source(
    setting=SETTING,
    nothing="{}",
    read=read,
    cloud=Cloud(
        title="Lambda",
        api_key=API_KEY,
        instance=INSTANCE,
        account=_account,
        module="lambda",
    ),
)
