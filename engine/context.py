"""The context that all parts of one operation share: journal, display, providers, failures."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine import plan
from engine.command.provider import CommandProvider
from engine.display import Display
from engine.docker.provider import DockerProvider
from engine.errors import UnsupportedError
from engine.journal import Journal
from engine.plan import Step
from engine.policy import Policies
from engine.project import Project
from engine.providers import WORK, DynamicProvider, TypeProvider
from engine.recorded import TrustedProviders
from engine.state import PROPERTY_FIELDS, PROVIDER_TYPE, now
from engine.values import Properties, reveal

DYNAMIC_PACKAGE = "pulumi-python"
PARALLEL = 16  # steps at a time


@dataclass(kw_only=True)
class Context:
    """One operation on one stack.

    Attributes:
        config: the stack's config, secrets in the clear.
        stopping: set when no further step may begin.
        failures: labels of what failed.
        unsettled: URNs whose creation was interrupted, and whose resource was not found.
        planned: what may be done, None for anything.
        steps: begun so far; in a preview, planned.
        policies: rules for registrations, None for none.
        recorded: trusted providers of dynamic resources.
    """

    project: Project
    stack: str
    config: dict[str, str]
    journal: Journal
    display: Display
    dry_run: bool
    planned: list[Step] | None = None
    policies: Policies | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    unsettled: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    _providers: dict[tuple[str, str], TypeProvider] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.recorded = _recorded(self.project, self.journal)

    def fail(self, label: str, error: BaseException) -> None:
        """Take note of a failure; steps under way end, no new one begins."""
        self.failures.append(label)
        self.stopping.set()
        # One fault, such as a daemon that does not answer, hits many resources at once.
        text = str(error) or repr(error)  # some have no text, such as a socket's timeout
        with self._lock:
            told = text in self._told
            self._told.add(text)
        if not told:
            self.display.message("error", f"{label}: {text}", "")
        self.display.trace(error)

    def registered(self, urn: str, type_: str, inputs: Properties) -> None:
        """Apply the policies to a registration, before anything is created.

        Raises:
            EngineError: one refuses it; a preview reports all at its end.
        """
        if self.policies is not None:
            self.policies.check(urn, type_, inputs)
            if not self.dry_run:
                self.policies.enforce()

    @contextmanager
    def step(
        self, operation: str, urn: str, olds: Properties | None, inputs: Properties
    ) -> Iterator[None]:
        """Show one step from its start to its end.

        Raises:
            EngineError: the plan does not hold it.
        """
        step = (operation, urn, inputs)
        if self.planned is not None and not self.dry_run:  # a preview reports all at its end
            plan.refuse(self.planned, [step])
        self.steps.append(step)
        with self.display.step(operation, urn, olds, inputs):
            yield

    def cancel(self) -> None:
        """Begin no further step, and end the waits of those under way where that is possible.

        Called by a signal's handler: it takes no lock.
        """
        self.stopping.set()
        for provider in list(self._providers.values()):
            if isinstance(provider, (DynamicProvider, CommandProvider)):
                provider.cancel()

    def provider(self, type_: str, reference: str) -> TypeProvider:
        """The provider of a resource type; the reference is its `urn::id`, as the state has it.

        Raises:
            UnsupportedError: the engine has none.
        """
        package = type_.partition(":")[0]
        key = package if package == DYNAMIC_PACKAGE else type_
        # The one that the program declares, if any: of another machine's Engine.
        declared = reference.rpartition("::")[0] if package == "docker" else ""
        with self._lock:
            if (key, declared) not in self._providers:
                self._providers[key, declared] = self._make_provider(package, type_, declared)
            return self._providers[key, declared]

    def provider_reference(self, type_: str, version: str) -> str:
        """`urn::id` of a package's default provider, which is an entry of the state too.

        The version is that of the package's plugin, as its SDK asks for it; "" for none.
        """
        package = type_.partition(":")[0]
        name = f"default_{version.replace('.', '_')}" if version else "default"
        urn = f"urn:pulumi:{self.stack}::{self.project.name}::{PROVIDER_TYPE}{package}::{name}"
        known = {"version": version}
        with self._lock:
            entry = self.journal.new(urn)
            if entry is None:
                old = self.journal.old(urn)
                entry = old or {
                    "urn": urn,
                    "custom": True,
                    "id": str(uuid.uuid4()),
                    "type": f"{PROVIDER_TYPE}{package}",
                    **({"inputs": known | {"__internal": {}}, "outputs": known} if version else {}),
                    "created": now(),
                    "modified": now(),
                }
                self.journal.record(entry, old, changed=False)
        return f"{urn}::{entry['id']}"

    def _settings(self, urn: str) -> Properties:
        """The settings of a provider, in the clear."""
        entry = self.journal.new(urn) or self.journal.old(urn) or {}
        found: Properties = reveal(entry.get("inputs", {}))
        return found

    def _make_provider(self, package: str, type_: str, declared: str) -> TypeProvider:
        if package == DYNAMIC_PACKAGE:
            return DynamicProvider(self.project.name, self.config, self.recorded)
        if package == "docker":
            if settings := [key for key in self.config if key.startswith(f"{package}:")]:
                raise UnsupportedError(f"the setting {settings[0]}")
            return DockerProvider(
                type_,
                lambda level, text: self.display.message(level, text, ""),
                lambda: self._settings(declared),
            )
        if package == "command":
            return CommandProvider(
                type_, lambda level, text: self.display.message(level, text, WORK.get().urn)
            )
        raise UnsupportedError(f"resources of the package {package!r}")


def _recorded(project: Project, journal: Journal) -> TrustedProviders:
    main = project.main if project.main.is_dir() else project.main.parent
    recorded, state = TrustedProviders(main, project.root), journal.state()
    for entry in (*state.resources, *(operation["resource"] for operation in state.pending)):
        for name in PROPERTY_FIELDS:
            recorded.trust(entry.get(name, {}))
    return recorded
