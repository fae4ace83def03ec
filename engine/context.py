"""What all parts of one operation share: journal, display, providers, targets, failures."""

from __future__ import annotations

import threading
import uuid
from fnmatch import fnmatchcase

from engine.display import Display
from engine.goal import PROVIDER_TYPE
from engine.journal import Journal
from engine.project import Project
from engine.providers import Provider, provider_for
from engine.state import Entry, now

PARALLEL = 16  # steps at a time


class Context:
    """One operation on one stack.

    Args:
        project: the project.
        stack: name of the stack.
        config: the stack's config, secrets in the clear.
        journal: the state as it changes.
        display: shows steps and messages.
        targets: URNs or patterns; empty for all.
        dry_run: plan only.

    Attributes:
        stopping: set when no further step may begin.
        failures: labels of what failed.
    """

    def __init__(
        self,
        *,
        project: Project,
        stack: str,
        config: dict[str, str],
        journal: Journal,
        display: Display,
        targets: list[str],
        dry_run: bool,
    ) -> None:
        self.project = project
        self.stack = stack
        self.journal = journal
        self.display = display
        self.dry_run = dry_run
        self.stopping = threading.Event()
        self.failures: list[str] = []
        self._config = config
        self._targets = targets
        self._providers: dict[str, Provider] = {}
        self._lock = threading.Lock()

    def fail(self, label: str, error: BaseException) -> None:
        """Take note of a failure; steps under way end, no new one begins."""
        self.failures.append(label)
        self.stopping.set()
        self.display.message("error", f"{label}: {error}", "")
        self.display.trace(error)

    def is_target(self, urn: str) -> bool:
        """True when the operation is about this resource."""
        return not self._targets or any(fnmatchcase(urn, pattern) for pattern in self._targets)

    def provider(self, type_: str) -> Provider:
        """The provider of a resource type.

        Raises:
            UnsupportedError: the engine has none.
        """
        package = type_.partition(":")[0]
        with self._lock:
            if package not in self._providers:
                self._providers[package] = provider_for(package, self.project.name, self._config)
            return self._providers[package]

    def provider_reference(self, type_: str) -> str:
        """`urn::id` of the package's default provider, which is an entry of the state too."""
        package = type_.partition(":")[0]
        urn = f"urn:pulumi:{self.stack}::{self.project.name}::{PROVIDER_TYPE}{package}::default"
        with self._lock:
            entry = self.journal.new(urn)
            if entry is None:
                old = self.journal.old([urn])
                entry = old or {
                    "urn": urn,
                    "custom": True,
                    "id": str(uuid.uuid4()),
                    "type": f"{PROVIDER_TYPE}{package}",
                    "created": now(),
                    "modified": now(),
                }
                self.journal.record(entry, old, changed=False)
        return f"{urn}::{entry['id']}"


def is_managed(entry: Entry) -> bool:
    """True for what a provider made, not for components and default providers."""
    return bool(entry.get("custom")) and not entry["type"].startswith(PROVIDER_TYPE)
