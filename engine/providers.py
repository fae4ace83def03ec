"""Providers: what really creates, reads, changes and deletes a resource.

This one is for dynamic resources: the class that the program itself defines (`engine/recorded.py`).
It gets properties in the clear and with Pulumi's sentinel for values that a preview does not know.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider

from engine.recorded import PROVIDER_KEY, TrustedProviders
from engine.state import Entry
from engine.values import Properties, whole_numbers

Say = Callable[[str, str], None]  # level and text of a message to the user


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The effect of a change of inputs.

    Attributes:
        changes: None when the provider leaves the comparison to the engine.
        replaces: properties whose change needs a new resource.
        delete_before_replace: the old one has to go first.
    """

    changes: bool | None = None
    replaces: list[str] = field(default_factory=list)
    delete_before_replace: bool = False


@dataclass(frozen=True, kw_only=True)
class Live:
    """A resource as it really is.

    Attributes:
        inputs: its inputs, None when they are as recorded.
        drifted: False when only undeclared outputs are new, such as an IP address.
    """

    id: str
    outputs: Properties
    inputs: Properties | None = None
    drifted: bool = True


@dataclass(frozen=True, kw_only=True)
class Work:
    """A provider's current step, which its methods are not told.

    Attributes:
        urn: of the resource.
        seconds: it may take, as custom_timeouts says; 0 for no limit.
    """

    urn: str
    seconds: float


WORK: ContextVar[Work] = ContextVar("WORK")


@contextmanager
def working(entry: Entry, kind: str) -> Iterator[None]:
    """Tell a provider its step (create, update or delete) while the body runs."""
    seconds = entry.get("customTimeouts", {}).get(kind, 0)
    token = WORK.set(Work(urn=entry["urn"], seconds=seconds))
    try:
        yield
    finally:
        WORK.reset(token)


class Actions(Protocol):
    """The work on resources of one type. Properties are in the clear."""

    def create(self, news: Properties) -> Live:
        """Make the resource, whole or not at all."""

    def find(self, news: Properties) -> Live | None:
        """The resource that a create of these inputs made before it was cut off.

        A half-made one is removed, and None returned: it has to be created again.
        """

    def read(self, id_: str, olds: Properties) -> Live | None:
        """The resource as it is now, None when it is gone."""

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        """Change the resource; its new outputs."""

    def delete(self, id_: str, olds: Properties) -> None:
        """Remove the resource."""


class TypeProvider(Actions, Protocol):
    """All operations on resources of one type. Unknowns are Pulumi's sentinel."""

    def check(self, olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        """Checked inputs, and a line for each fault."""

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diff:
        """Compare old outputs with new inputs."""


class DynamicProvider:
    """Dynamic resources of any trusted class, which gets the stack's config in the clear."""

    def __init__(self, project: str, config: dict[str, str], recorded: TrustedProviders) -> None:
        self._project = project
        self._config = config
        self._recorded = recorded
        self._loaded: dict[str, ResourceProvider] = {}
        self._lock = threading.Lock()

    def check(self, olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        result = self._load(news).check(dict(olds), dict(news))
        inputs = _plain(result.inputs) | {PROVIDER_KEY: news[PROVIDER_KEY]}
        faults = result.failures or []
        return inputs, [f"{fault.property}: {fault.reason}" for fault in faults]

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diff:
        result = self._load(news).diff(id_, olds, news)
        return Diff(
            changes=result.changes,
            replaces=list(result.replaces or []),
            delete_before_replace=bool(result.delete_before_replace),
        )

    def create(self, news: Properties) -> Live:
        return self._live(self._load(news).create(dict(news)), news)

    def find(self, news: Properties) -> Live | None:
        # An addition of ours, which Pulumi never calls. A class without it leaves nothing behind,
        # or takes over an existing resource when it creates again.
        find = getattr(self._load(news), "find", None)
        found = find(dict(news)) if find is not None else None
        return None if found is None else self._live(found, news)

    def read(self, id_: str, olds: Properties) -> Live | None:
        result = self._load(olds).read(id_, dict(olds))
        if not result.id:
            return None
        live = self._live(result, olds)
        inputs = getattr(result, "inputs", None)
        if inputs is None:
            return live
        marked = _plain(inputs) | {PROVIDER_KEY: olds[PROVIDER_KEY]}
        return Live(id=live.id, outputs=live.outputs, inputs=marked)

    def fault(self, id_: str, olds: Properties) -> str:
        """Return a resource's present fault, "" without one or for types that report none."""
        fault = getattr(self._load(olds), "fault", None)
        return str(fault(id_, dict(olds))) if fault is not None else ""

    def log(self, id_: str, olds: Properties, lines: int) -> list[str]:
        """Return the last lines of a service's log, none for types that have none."""
        log = getattr(self._load(olds), "log", None)
        return [str(line) for line in log(id_, dict(olds), lines)] if log is not None else []

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        result = self._load(news).update(id_, dict(olds), dict(news))
        return _plain(result.outs or {}) | {PROVIDER_KEY: news[PROVIDER_KEY]}

    def delete(self, id_: str, olds: Properties) -> None:
        self._load(olds).delete(id_, dict(olds))

    def cancel(self) -> None:
        """End the waits of classes with a method `cancel`, which Pulumi itself never calls."""
        for provider in list(self._loaded.values()):
            if (cancel := getattr(provider, "cancel", None)) is not None:
                cancel()

    def _live(self, result: Any, props: Properties) -> Live:
        outputs = _plain(result.outs or {}) | {PROVIDER_KEY: props[PROVIDER_KEY]}
        return Live(id=str(result.id), outputs=outputs)

    def _load(self, props: Properties) -> ResourceProvider:
        pickled = props[PROVIDER_KEY]
        with self._lock:
            provider = self._loaded.get(pickled)
            if provider is None:
                provider = self._recorded.load(pickled)
                config = Config(raw_config=self._config, project_name=self._project)
                provider.configure(ConfigureRequest(config=config))
                self._loaded[pickled] = provider
            return provider


def _plain(values: dict[str, Any]) -> Properties:
    """The values as JSON has them, without top-level nulls, as they cross Pulumi's wire."""
    present = {key: value for key, value in values.items() if value is not None}
    plain: Properties = whole_numbers(json.loads(json.dumps(present)))
    return plain
