"""The bases of all dynamic providers and resources.

The first adds two things that Pulumi's host of providers lacks. Under the CLI they run in a process
that Pulumi's package brings (pulumi/dynamic/__main__.py). It answers Cancel and does nothing, so a
wait would hold up the first Ctrl-C, and the second one makes the CLI abandon running operations.
And it reports each error as a Python traceback with the message somewhere in it. It has no setting
for either, so its module is changed where it runs; the tests in
`tests/integration/infra/lambda_cloud/test_host.py` fail when Pulumi changes what this relies on.
"""

import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import FunctionType, SimpleNamespace, UnionType
from typing import (
    Any,
    ClassVar,
    Generic,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import pulumi
from pulumi import dynamic
from pulumi.output import Unknown
from pulumi.runtime.rpc import UNKNOWN

from cluster.provider_kinds import Recorded, kind_of
from trainyard.access import terminal, typed

# A variable of the user of `up`: Ray is restarted although its jobs are lost.
FORCE = "TRAINYARD_FORCE"
# A variable of `train scale`: a fault elsewhere must not keep a machine running that should end.
IGNORE_HEALTH = "TRAINYARD_IGNORE_HEALTH"
_told: set[str] = set()  # one fault, such as a dead daemon, affects many resources
say = terminal.warn  # from within a provider: both engines show its output
T = TypeVar("T")
# An argument of a resource: also an Output where it is declared, known where a provider has it.
Given: TypeAlias = T | Any


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True)
class Args:
    """The base of the arguments of resources, which makes each class a frozen dataclass.

    They are named like the properties in states. One that is None is not in the state.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> Self:
        """Return the arguments in the properties of a resource, without its outputs.

        Raises:
            TypeError: a property is missing, or of another type.
        """
        kinds = _kinds(cls)  # type: ignore[arg-type]  # mypy takes the class for unhashable
        return cls(**{n: _checked(n, props[n], kinds[n]) for n in kinds.keys() & props.keys()})


@cache
def _kinds(args: type[Args]) -> dict[str, tuple[type, ...]]:
    """Return the classes that each argument's value may have."""
    hints = get_type_hints(args)
    return {each.name: tuple(_classes(hints[each.name])) for each in fields(args)}


def _classes(hint: Any) -> list[type]:
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and origin is not UnionType:
        return [origin]
    return [found for each in get_args(hint) if each is not Any for found in _classes(each)]


def _checked(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    """Return a value if it is of the kinds, or unknown: engines pass ints on as floats."""
    if isinstance(value, float) and value.is_integer() and int in kinds:
        return int(value)
    numbers = {int} if float in kinds else set()
    if not isinstance(value, (*kinds, *numbers)) and not has_unknown(value):
        raise TypeError(f"property {name} must be {' or '.join(k.__name__ for k in kinds)}")
    return value


A = TypeVar("A", bound=Args)


class Provider(dynamic.ResourceProvider, Generic[A]):
    """The base of this project's providers; Ctrl-C calls their method `cancel`, if any.

    Most make and look up a resource by its arguments alone: `make` and `exists`.

    Attributes:
        replaces: properties whose change needs a new resource; the old one is deleted first.
        health_output: the output with the health at the last look, "" for none.
    """

    serialize_as_secret_always = False  # captures nothing
    takes: type[A]  # class of the arguments, that of the subscript
    replaces: tuple[str, ...] = ()
    health_output = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            for each in get_args(base):
                if isinstance(each, type):
                    cls.takes = each

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Let states record the kind: then modules and classes may move."""
        kind = kind_of(type(self))
        return (Recorded, (kind,)) if kind else super().__reduce_ex__(protocol)

    def configure(self, req: dynamic.ConfigureRequest) -> None:  # noqa: ARG002
        """Called once, before all other methods; a class that overrides it calls this one too."""
        change_host()

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Compare old outputs with new inputs; None is an input that only outputs have.

        A resource at fault differs too: `up` repairs it or fails, even if nothing else changed.
        """
        changed = [key for key, new in news.items() if new is not None and olds.get(key) != new]
        changes = any(key != "__provider" for key in changed) or not olds.get(
            self.health_output, True
        )
        fault = "" if changes or os.environ.get(IGNORE_HEALTH) else self.fault(_id, olds)
        if fault and fault not in _told:
            _told.add(fault)
            terminal.warn(fault)
        return dynamic.DiffResult(
            changes=changes or bool(fault),
            replaces=[key for key in self.replaces if key in changed],
            delete_before_replace=True,
        )

    def fault(self, _id: str, _props: dict[str, Any]) -> str:
        """Return what is wrong with a resource that was up, "" if nothing is."""
        return ""

    def make(self, args: A) -> tuple[str, dict[str, Any]]:
        """Make a resource; return its id, and its outputs beyond the arguments."""
        raise NotImplementedError

    def exists(self, _id: str, _args: A) -> bool:
        """Return whether it is still there; True for one that is in the state only."""
        return True

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        id_, outs = self.make(self.takes.of(props))
        return dynamic.CreateResult(id_, {**props, **outs})

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        return seen(id_, props if self.exists(id_, self.takes.of(props)) else None)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Create it again with the same id."""
        return dynamic.UpdateResult(self.create(news).outs)


class Resource(dynamic.Resource, Generic[A]):
    """The base of this project's dynamic resources: its annotations are the outputs."""

    _kind: ClassVar[type[Provider[Any]]]
    _secret: ClassVar[list[str]] = []

    def __init__(self, name: str, args: A, opts: pulumi.ResourceOptions | None = None) -> None:
        outputs = [key for key in type(self).__annotations__ if not key.startswith("_")]
        # The host of providers does not mark new outputs as secret: the option does.
        secret = pulumi.ResourceOptions(additional_secret_outputs=self._secret)
        super().__init__(
            self._kind(),
            name,
            {**dict.fromkeys(outputs), **vars(args)},
            pulumi.ResourceOptions.merge(opts, secret),
        )


def seen(id_: str, props: dict[str, Any] | None) -> dynamic.ReadResult:
    """Return what a look found; None for a resource that is gone."""
    return dynamic.ReadResult("", {}) if props is None else dynamic.ReadResult(id_, props)


def change_host() -> None:
    """Let Pulumi's host pass Cancel on and report errors by their message; a no-op elsewhere."""
    host = sys.modules["__main__"]
    servicer = getattr(host, "DynamicResourceProviderServicer", None)
    if servicer is None:
        return
    # gRPC keeps a reference to the method, so a new attribute would have no effect: swap its code.
    if isinstance(method := getattr(servicer, "Cancel", None), FunctionType):
        method.__code__ = _cancel_all.__code__
    # The host uses this module only for the text of the current error.
    host.traceback = SimpleNamespace(format_exc=message)  # type: ignore[attr-defined]


def message() -> str:
    """The text for the current exception: its own, or its traceback if it is unexpected."""
    error = sys.exception()
    package = type(error).__module__.partition(".")[0]
    unforeseen = package in sys.stdlib_module_names and not isinstance(error, OSError)
    if unforeseen and not isinstance(error, pulumi.RunError):
        return traceback.format_exc()
    return typed.commands(str(error)) or repr(error)


def _cancel_all(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    """Run in place of the host's Cancel, with the host's globals."""
    for provider in list(_PROVIDER_CACHE.values()):  # type: ignore[name-defined]  # noqa: F821
        if hasattr(provider, "cancel"):
            provider.cancel()
    return empty_pb2.Empty()  # type: ignore[name-defined]  # noqa: F821


def has_unknown(value: Any) -> bool:
    """Return whether any part of a value is known only after an update."""
    if isinstance(value, dict | list | tuple):
        return any(map(has_unknown, value.values() if isinstance(value, dict) else value))
    # Pulumi's host of dynamic providers has an object for it, the embedded engine its sentinel.
    return isinstance(value, Unknown) or bool(value == UNKNOWN)
