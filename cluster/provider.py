"""The bases of all dynamic providers and resources.

The first adds two things that Pulumi's host of providers lacks. Under the CLI they run in a process
that Pulumi's package brings (pulumi/dynamic/__main__.py). It answers Cancel and does nothing, so a
wait would hold up the first Ctrl-C, and the second one makes the CLI abandon running operations.
And it reports each error as a Python traceback with the message somewhere in it. It has no setting
for either, so its module is changed where it runs; the tests in
`tests/integration/infra/test_provider_host.py` fail when Pulumi changes what this relies on.
"""

import os
import sys
import traceback
from collections.abc import Mapping
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar, SupportsIndex

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


class Provider(dynamic.ResourceProvider):
    """The base of this project's providers; Ctrl-C calls their method `cancel`, if any.

    Attributes:
        replaces: properties whose change needs a new resource; the old one is deleted first.
        health_output: the output with the health at the last look, "" for none.
    """

    serialize_as_secret_always = False  # captures nothing
    replaces: tuple[str, ...] = ()
    health_output = ""

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

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Create it again with the same id."""
        return dynamic.UpdateResult(self.create(news).outs)


class Resource(dynamic.Resource):
    """The base of this project's dynamic resources: its annotations are the outputs."""

    _kind: ClassVar[type[Provider]]
    _secret: ClassVar[list[str]] = []

    def __init__(
        self,
        name: str,
        props: Mapping[str, pulumi.Input[Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it; see the class for props."""
        outputs = [key for key in type(self).__annotations__ if not key.startswith("_")]
        # The host of providers does not mark new outputs as secret: the option does.
        secret = pulumi.ResourceOptions(additional_secret_outputs=self._secret)
        super().__init__(
            self._kind(),
            name,
            {**dict.fromkeys(outputs), **props},
            pulumi.ResourceOptions.merge(opts, secret),
        )


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


def say(message: str) -> None:
    """Tell the user something from within a provider: both engines show its output."""
    terminal.warn(message)


def has_unknown(value: Any) -> bool:
    """Return whether any part of a value is known only after an update."""
    if isinstance(value, dict | list | tuple):
        return any(map(has_unknown, value.values() if isinstance(value, dict) else value))
    # Pulumi's host of dynamic providers has an object for it, the embedded engine its sentinel.
    return isinstance(value, Unknown) or bool(value == UNKNOWN)
