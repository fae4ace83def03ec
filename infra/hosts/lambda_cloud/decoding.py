"""Answers of Lambda Cloud's API, checked part by part: whole things come out, or one error."""

from collections.abc import Callable
from typing import Any, TypeVar

from infra.hosts.lambda_cloud.model import (
    FileSystem,
    FirewallRule,
    FirewallRuleset,
    Image,
    Machine,
    Offer,
    SshKey,
)

T = TypeVar("T")


class UnexpectedError(Exception):
    """A part of an answer is missing or of another type."""


def each(decode: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    """Return a decoder of lists."""

    def decode_all(data: Any) -> list[T]:
        if not isinstance(data, list):
            raise UnexpectedError(f"{_kind(data)} in place of a list")
        return [decode(entry) for entry in data]

    return decode_all


def within(key: str, decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a decoder of the value that an object has under a key."""
    return lambda data: decode(_get(data, key, object))


def nothing(data: Any) -> None:
    """Check the answer of a call without another result."""
    if not isinstance(data, dict):
        raise UnexpectedError(f"{_kind(data)} in place of an object")


def offers(data: Any) -> dict[str, Offer]:
    """Decode types of instance by name."""
    if not isinstance(data, dict):
        raise UnexpectedError(f"{_kind(data)} in place of an object")
    return {name: _offer(entry) for name, entry in data.items()}


def machine(data: Any) -> Machine:
    """Decode an instance."""
    kind = _get(data, "instance_type", dict)
    return Machine(
        id=_get(data, "id", str),
        name=_optional(data, "name", ""),
        ip=_optional(data, "ip", ""),
        private_ip=_optional(data, "private_ip", ""),
        status=_get(data, "status", str),
        region=_get(_get(data, "region", dict), "name", str),
        instance_type=_get(kind, "name", str),
        hostname=_optional(data, "hostname", ""),
        tags={_get(tag, "key", str): _get(tag, "value", str) for tag in _list(data, "tags")},
        ssh_key_names=_texts(_get(data, "ssh_key_names", list)),
        firewall_ruleset_ids=tuple(
            _get(each, "id", str) for each in _list(data, "firewall_rulesets")
        ),
        price_cents_per_hour=_get(kind, "price_cents_per_hour", int),
    )


def launched(data: Any) -> str:
    """Decode the id of the one instance that a launch gives."""
    ids = _texts(_get(data, "instance_ids", list))
    if len(ids) != 1:
        raise UnexpectedError(f"{len(ids)} ids for one launch")
    return ids[0]


def ssh_key(data: Any) -> SshKey:
    """Decode an SSH key."""
    return SshKey(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        public_key=_get(data, "public_key", str),
        private_key=_optional(data, "private_key", ""),
    )


def file_system(data: Any) -> FileSystem:
    """Decode a file system."""
    return FileSystem(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        region=_get(_get(data, "region", dict), "name", str),
        mount_point=_get(data, "mount_point", str),
        in_use=_get(data, "is_in_use", bool),
    )


def firewall_ruleset(data: Any) -> FirewallRuleset:
    """Decode a firewall ruleset."""
    return FirewallRuleset(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        region=_get(_get(data, "region", dict), "name", str),
        rules=tuple(_rule(rule) for rule in _get(data, "rules", list)),
        instance_ids=_texts(_get(data, "instance_ids", list)),
    )


def image(data: Any) -> Image:
    """Decode an image."""
    return Image(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        family=_get(data, "family", str),
        version=_get(data, "version", str),
        architecture=_get(data, "architecture", str),
        region=_get(_get(data, "region", dict), "name", str),
    )


def _offer(data: Any) -> Offer:
    kind = _get(data, "instance_type", dict)
    specs = _get(kind, "specs", dict)
    regions = _get(data, "regions_with_capacity_available", list)
    return Offer(
        name=_get(kind, "name", str),
        description=_optional(kind, "description", ""),
        gpu_description=_optional(kind, "gpu_description", ""),
        price_cents_per_hour=_get(kind, "price_cents_per_hour", int),
        vcpus=_get(specs, "vcpus", int),
        memory_gib=_get(specs, "memory_gib", int),
        storage_gib=_get(specs, "storage_gib", int),
        gpus=_get(specs, "gpus", int),
        regions=tuple(_get(region, "name", str) for region in regions),
    )


def _rule(data: Any) -> FirewallRule:
    ports = _list(data, "port_range")
    if ports and (len(ports) != 2 or not all(type(port) is int for port in ports)):
        raise UnexpectedError("`port_range` is not two numbers")
    return FirewallRule(
        protocol=_get(data, "protocol", str),
        source_network=_get(data, "source_network", str),
        description=_optional(data, "description", ""),
        port_range=(ports[0], ports[1]) if ports else None,
    )


def _texts(data: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(each, str) for each in data):
        raise UnexpectedError("a list of texts holds something else")
    return tuple(data)


def _list(data: Any, key: str) -> list[Any]:
    empty: list[Any] = []
    return _optional(data, key, empty)


def _optional(data: Any, key: str, default: T) -> T:
    """Return a value that may be missing or null."""
    if isinstance(data, dict) and data.get(key) is None:
        return default
    return _get(data, key, type(default))


def _get(data: Any, key: str, kind: type[T]) -> T:
    if not isinstance(data, dict):
        raise UnexpectedError(f"{_kind(data)} in place of an object with `{key}`")
    value = data.get(key)
    # A JSON true is not a number, though Python's bool is an int.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UnexpectedError(f"`{key}` is {_kind(value)}, not {kind.__name__}")
    return value


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__
