"""Settings of stacks on other machines: which ones, how they are reached, what they cost.

Deliberately absent: any look at a machine or an account.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.reader import Reader

MAX_HOSTS = 64
SSH_PORT = 22
# What reaches a command line, a file or another machine is one of these and nothing else.
ADDRESS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+", re.ASCII
)
USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
HOST_KEY = re.compile(r"(?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+=*")
# As the API takes them.
MOUNT_POINT = re.compile(r"(?:/home|/lambda/nfs|/data)(?:/[A-Za-z0-9-]+)*", re.ASCII)
PLAIN_PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._-]+)+")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TYPE = re.compile(r"[a-z0-9_]{1,64}")
REGION = re.compile(r"[a-z0-9-]{1,32}")
FILE_SYSTEM = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]{0,59}")
HOST_FIELDS = ("address", "user", "hostKey", "port", "privateAddress", "gpus")
LAMBDA_FIELDS = (
    *("instances", "candidates", "gpus", "gpuMemoryGib", "maxHourlyCost", "budget", "ttlHours"),
    *("sshKeyName", "bootTimeoutMinutes", "fileSystems"),
)
SHOWN_COMMAND = 80  # characters of a command that a fault shows


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that is there already.

    Attributes:
        address: name or address that this machine reaches it by.
        user: who to log in as.
        host_key: its public host key, without a name.
        port: of its SSH server.
        private_address: that the other hosts reach it by.
        gpus: that it has, None to look.
    """

    address: str
    user: str
    host_key: str
    port: int
    private_address: str
    gpus: int | None


@dataclass(frozen=True, kw_only=True)
class LambdaCloud:
    """Instances to be rented; names and units are those of docs/configuration.md.

    Attributes:
        candidates: types and regions in order; a region of "" is any.
        gpus: that an instance is to have at least, where there are no candidates.
        gpu_memory_gib: of each of them, 0 for any.
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


def hosts(reader: Reader) -> tuple[Host, ...]:
    """Return the machines that are there already."""
    key = "hosts"
    given = reader.array(key, "write a list of machines, such as [{address, user, hostKey}]")
    if len(given) > MAX_HOSTS:
        reader.fault(key, len(given), f"must be at most {MAX_HOSTS} machines", "remove some")
    found = tuple(_host(reader, f"{key}[{i}]", value) for i, value in enumerate(given[:MAX_HOSTS]))
    places = [(host.address, host.port) for host in found]
    for index, place in enumerate(places):
        if place[0] and place in places[:index]:
            reader.fault(f"{key}[{index}]", place[0], "is listed twice", "remove one of them")
        elif len(found) > 1:
            _check_among(reader, f"{key}[{index}].privateAddress", found, index)
    return found


def _check_among(reader: Reader, key: str, found: tuple[Host, ...], index: int) -> None:
    """Check what the other hosts reach one by."""
    address = found[index].private_address
    if ":" in address:
        bound = "must be a name or an IPv4 address where there are several hosts"
        reader.fault(key, address, bound, f"set {key} to one")
    elif address and address in [host.private_address for host in found[:index]]:
        bound = "is that of another host, and each needs one of its own"
        reader.fault(key, address, bound, f"set {key} to what the other hosts reach it by")


def _host(reader: Reader, key: str, value: Any) -> Host:
    fields = _object(reader, key, value, HOST_FIELDS)
    address = _text(
        reader, f"{key}.address", fields, ADDRESS, "must be a host name or an IP address", ""
    )
    return Host(
        address=address,
        user=_text(reader, f"{key}.user", fields, USER, "must be a user's name", ""),
        host_key=_text(
            reader,
            f"{key}.hostKey",
            fields,
            HOST_KEY,
            "must be the machine's public host key, such as 'ssh-ed25519 AAAA…': nothing else "
            "tells it from one that took its address",
            f"log in there and run cat /etc/ssh/ssh_host_ed25519_key.pub, or trust the network "
            f"once with ssh-keyscan -t ed25519 {address or 'ADDRESS'}; leave out the name and "
            "the comment",
        ),
        port=_whole(reader, f"{key}.port", fields, 1, 65535, SSH_PORT),
        private_address=_text(
            reader,
            f"{key}.privateAddress",
            fields,
            ADDRESS,
            "must be an address that the other hosts reach it by",
            "",
        )
        if "privateAddress" in fields
        else address,
        gpus=_whole(reader, f"{key}.gpus", fields, 0, 64, 0) if "gpus" in fields else None,
    )


def lambda_cloud(reader: Reader) -> LambdaCloud | None:
    """Return what is to be rented; None for nothing."""
    key = "lambdaCloud"
    given = reader.object(key, f"write its fields: {', '.join(LAMBDA_FIELDS)}")
    if not given:
        return None
    fields = _object(reader, key, given, LAMBDA_FIELDS)
    candidates = fields.get("candidates", [])
    if not isinstance(candidates, list):
        reader.fault(f"{key}.candidates", candidates, "must be a list", "write [{type, region}]")
        candidates = []
    gpus = _whole(reader, f"{key}.gpus", fields, 1, 64, 0)
    if bool(candidates) == bool(gpus):
        bound = "needs either candidates or gpus"
        action = f"set {key}.candidates to [{{type: gpu_1x_a10, region: us-east-1}}] or {key}.gpus"
        reader.fault(key, given, bound, action)
    ttl = _amount(reader, f"{key}.ttlHours", fields, 24 * 365)
    budget = _amount(reader, f"{key}.budget", fields, 1e7)
    if budget and not ttl:
        bound = "needs ttlHours: without an end there is no cost in all"
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
        instances=_whole(reader, f"{key}.instances", fields, 1, MAX_HOSTS, 1),
        candidates=tuple(
            _candidate(reader, f"{key}.candidates[{index}]", value)
            for index, value in enumerate(candidates)
        ),
        gpus=gpus,
        gpu_memory_gib=_whole(reader, f"{key}.gpuMemoryGib", fields, 1, 1024, 0),
        max_hourly_cost=_amount(reader, f"{key}.maxHourlyCost", fields, 1e6),
        budget=budget,
        ttl_hours=ttl,
        ssh_key_name=_text(
            reader,
            f"{key}.sshKeyName",
            {"sshKeyName": "trainyard", **fields},
            NAME,
            "must be at most 64 letters, digits and . _ @ -",
            "",
        ),
        boot_timeout_minutes=_whole(reader, f"{key}.bootTimeoutMinutes", fields, 1, 180, 30),
        file_systems=systems,
    )


def _candidate(reader: Reader, key: str, value: Any) -> Mapping[str, str]:
    fields = _object(reader, key, value, ("type", "region"))
    bound = "must be a name of lowercase letters, digits and _ or -"
    return {
        "type": _text(reader, f"{key}.type", fields, TYPE, bound, "such as gpu_1x_a10"),
        "region": _text(reader, f"{key}.region", fields, REGION, bound, "such as us-east-1")
        if "region" in fields
        else "",
    }


def ssh_key_file(reader: Reader) -> Path | None:
    """Return the file of the private key; None for what the SSH agent has."""
    text = reader.text("sshKeyFile")
    if not text:
        return None
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~somebody, who is no user of this machine
        path = Path(text)
    reader.check_path("sshKeyFile", str(path))
    return path


def setup_commands(reader: Reader) -> tuple[str, ...]:
    """Return the commands that each host runs before its environment is made."""
    key = "setupCommands"
    given = reader.array(key, "write a list of commands")
    for index, value in enumerate(given):
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            shown = value if isinstance(value, str) else str(value)
            bound = "must be a command for the host's shell"
            reader.fault(f"{key}[{index}]", shown[:SHOWN_COMMAND], bound, "write it in quotes")
    return tuple(value for value in given if isinstance(value, str))


def python_environment(reader: Reader) -> str:
    """Return the folder of a Python environment on the hosts; "" to have one made."""
    key = "pythonEnvironment"
    text = reader.text(key)
    if text and not PLAIN_PATH.fullmatch(text):
        bound = "must be an absolute path of letters, digits and . _ -"
        reader.fault(key, text, bound, "name the folder that holds bin/python")
    return text


def _object(reader: Reader, key: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        reader.fault(key, value, "must be an object", f"write its fields: {', '.join(known)}")
        return {}
    for name in value:
        if name not in known:
            reader.unknown(f"{key}.{name}", value[name], name, known)
    return value


def _text(
    reader: Reader,
    key: str,
    fields: Mapping[str, Any],
    pattern: re.Pattern[str],
    bound: str,
    action: str,
) -> str:
    value = fields.get(key.rpartition(".")[2], "")
    if not isinstance(value, str) or not pattern.fullmatch(value):
        reader.fault(key, value, bound, action or f"set {key} to one")
        return ""
    return value


def _whole(
    reader: Reader, key: str, fields: Mapping[str, Any], low: int, high: int, default: int
) -> int:
    value = fields.get(key.rpartition(".")[2], default)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not (low <= value <= high or value == default):
        bound = f"must be a whole number from {low} to {high}"
        reader.fault(key, value, bound, f"set {key} within it")
        return default
    return int(value)


def _amount(reader: Reader, key: str, fields: Mapping[str, Any], high: float) -> float:
    value = fields.get(key.rpartition(".")[2], 0)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= high:
        reader.fault(key, value, f"must be a number from 0 to {high:g}", f"set {key} within it")
        return 0.0
    return float(value)
