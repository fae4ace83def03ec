"""One operation on a stack: the SDK's resource monitor, and the steps that it leads to.

The SDK takes any object as its monitor, so there is no server and no second protocol: the program
runs in this process, and its registrations arrive here on threads of the SDK's executor.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, resource_pb2

from engine.display import Display
from engine.errors import EngineError, UnsupportedError
from engine.goal import (
    PROVIDER_TYPE,
    STACK_TYPE,
    Goal,
    changed_keys,
    forced_replaces,
    goal_of,
    keep_ignored,
)
from engine.journal import Journal
from engine.project import Project
from engine.providers import Diff, Live, Provider, provider_for
from engine.state import Entry, State, now
from engine.values import (
    UNKNOWN,
    Properties,
    from_struct,
    has_unknown,
    mark_like,
    reveal,
    secret,
    to_struct,
)

PARALLEL = 16  # steps at a time
SEVERITIES = {
    engine_pb2.DEBUG: "debug",
    engine_pb2.INFO: "info",
    engine_pb2.WARNING: "warning",
    engine_pb2.ERROR: "error",
}


class StoppedError(Exception):
    """No further step is begun: one failed, or the user asked to stop."""


class Deployment:
    """The resource monitor and engine that the SDK talks to, and the steps behind them.

    Args:
        project: the project.
        stack: name of the stack.
        config: the stack's config, secrets in the clear.
        state: the stack's state as loaded.
        save: writes a state durably; None for a preview, which changes nothing.
        display: shows steps and messages.
        targets: URNs or patterns; empty for all.
    """

    def __init__(
        self,
        *,
        project: Project,
        stack: str,
        config: dict[str, str],
        state: State,
        save: Callable[[State], None] | None,
        display: Display,
        targets: list[str],
    ) -> None:
        self.journal = Journal(state, save)
        self.stopping = threading.Event()
        self.failures: list[str] = []
        self._project = project
        self._stack = stack
        self._config = config
        self._dry_run = save is None
        self._display = display
        self._targets = targets
        self._lock = threading.Lock()
        self._providers: dict[str, Provider] = {}
        self._registered: set[str] = set()
        self._aliases: dict[str, list[str]] = {}
        self._interrupted = list(state.pending)

    # -- the SDK's monitor ---------------------------------------------------------------------

    def GetDeploymentInfo(self, _: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:  # noqa: N802
        """Features that the SDK may use; without SECRETS it would send secrets in the clear."""
        return resource_pb2.DeploymentInfo(
            supportedFeatures=[
                resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
                resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
            ]
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Bring one resource to what the program asks for."""
        label = f"{request.type} {request.name}"
        try:
            if self.stopping.is_set():
                raise StoppedError
            goal = goal_of(
                request,
                project=self._project.name,
                stack=self._stack,
                parent_aliases=self._aliases.get(request.parent, []),
            )
            with self._lock:
                if goal.urn in self._registered:
                    raise EngineError(f"{goal.urn} is registered twice; give one another name")
                self._registered.add(goal.urn)
                self._aliases[goal.urn] = goal.aliases
            entry, outputs = self._reconcile(goal)
        except StoppedError:
            return resource_pb2.RegisterResourceResponse(result=resource_pb2.FAIL)
        except Exception as error:
            self.fail(label, error)
            return resource_pb2.RegisterResourceResponse(result=resource_pb2.FAIL)
        return resource_pb2.RegisterResourceResponse(
            urn=goal.urn, id=entry.get("id", ""), object=to_struct(outputs)
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Outputs of a component or of the stack."""
        entry = self.journal.new(request.urn)
        if entry is not None and not self.stopping.is_set():
            outputs = from_struct(request.outputs)
            if entry["type"] == STACK_TYPE:
                self._display.outputs(entry.get("outputs", {}), outputs)
            self.journal.mark(entry, outputs=outputs)
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802
        """The program is done; the engine needs nothing more of it."""
        return empty_pb2.Empty()

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> NoReturn:  # noqa: N802
        """Refused: functions of providers."""
        raise UnsupportedError(f"the function {request.tok}")

    def ReadResource(self, request: resource_pb2.ReadResourceRequest) -> NoReturn:  # noqa: N802
        """Refused: resources that are looked up."""
        raise UnsupportedError(f"the lookup of {request.type} {request.name}")

    def Call(self, request: resource_pb2.ResourceCallRequest) -> NoReturn:  # noqa: N802
        """Refused: methods of remote components."""
        raise UnsupportedError(f"the method {request.tok}")

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802
        """A message of the program or of a provider."""
        self._display.message(SEVERITIES[request.severity], request.message, request.urn)
        return empty_pb2.Empty()

    # -- what the command line asks for --------------------------------------------------------

    def fail(self, label: str, error: BaseException) -> None:
        """Take note of a failure; steps under way end, no new one begins."""
        self.failures.append(label)
        self.stopping.set()
        self._display.message("error", f"{label}: {error}", "")
        self._display.trace(error)

    def recover(self) -> None:
        """Settle what an operation that was killed left under way.

        A create may or may not have happened: the provider is asked to find it. What was being
        changed or deleted is read again.
        """
        for operation in self._interrupted:
            entry = operation["resource"]
            self._display.message(
                "warning",
                f"{operation['type']} was interrupted; looking what is there",
                entry["urn"],
            )
            if operation["type"] == "creating":
                self._recover_create(entry)
            else:
                held = self.journal.old([entry["urn"]])
                if held is not None and held.get("custom"):
                    self._refresh_one(held)

    def refresh(self) -> None:
        """Bring the state to what providers say is there."""
        chosen = [entry for entry in self.journal.olds if self._is_read(entry)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            done = [pool.submit(copy_context().run, self._refresh_one, entry) for entry in chosen]
            for entry, future in zip(chosen, done, strict=True):
                if (error := future.exception()) is not None:
                    self.fail(entry["urn"], error)

    def delete_unregistered(self) -> None:
        """Delete what the program no longer asks for, and the replaced halves of replacements."""
        self._delete(
            [entry for entry in self.journal.olds if entry.get("delete") or self._is_target(entry)]
        )

    # -- one resource --------------------------------------------------------------------------

    def _reconcile(self, goal: Goal) -> tuple[Entry, Properties]:
        """The entry after the step, and the outputs that the program may see."""
        old = self.journal.old([goal.urn, *goal.aliases])
        if goal.custom and not self._is_target({"urn": goal.urn}):
            return self._leave(goal, old)
        provider = self._provider(goal.package) if goal.custom else None
        reference = self._provider_reference(goal.package) if goal.custom else ""
        inputs = goal.inputs
        if old is not None:
            inputs = keep_ignored(inputs, old.get("inputs", {}), goal.ignore_changes)
        if provider is not None:
            if not self._dry_run and has_unknown(inputs):
                raise EngineError("an input is not known: what it comes from was not a target")
            olds = reveal(old.get("inputs", {})) if old is not None else {}
            checked, faults = provider.check(olds, reveal(inputs))
            if faults:
                raise EngineError("; ".join(faults))
            inputs = mark_like(checked, inputs)
        created = old.get("created", now()) if old is not None else now()
        entry = goal.entry(inputs, reference, created, now())
        if provider is None:
            return self._component(goal, old, entry)
        if old is None or old.get("pendingReplacement"):
            return self._create(provider, goal, old, entry)
        diff = self._diff(provider, goal, old, inputs)
        if diff.replaces:
            return self._replace(provider, goal, old, entry, diff)
        if diff.changes:
            return self._update(provider, goal, old, entry)
        # The old half of a pair of marks may be new: outputs follow additional_secret_outputs.
        entry |= {"id": old["id"], "modified": old.get("modified", entry["modified"])}
        entry["outputs"] = self._marked(goal, inputs, reveal(old.get("outputs", {})), old)
        self._display.done("same", goal.urn)
        self.journal.record(entry, old, changed=False)
        return entry, entry["outputs"]

    def _leave(self, goal: Goal, old: Entry | None) -> tuple[Entry, Properties]:
        """A resource that is no target stays as it is; a new one stays unmade."""
        if old is None:
            return {"urn": goal.urn}, dict.fromkeys(goal.inputs, UNKNOWN)
        self.journal.record(old, old, changed=False)
        self._provider_reference(goal.package)
        self._display.done("same", goal.urn)
        return old, old.get("outputs", {})

    def _component(self, goal: Goal, old: Entry | None, entry: Entry) -> tuple[Entry, Properties]:
        if old is None:
            operation = "create"
        else:
            operation = "same" if old.get("inputs", {}) == goal.inputs else "update"
            if "outputs" in old:
                entry["outputs"] = old["outputs"]
        self._display.done(operation, goal.urn)
        self.journal.record(entry, old, changed=operation != "same")
        return entry, goal.inputs

    def _diff(self, provider: Provider, goal: Goal, old: Entry, inputs: Properties) -> Diff:
        diff = provider.diff(old["id"], reveal(old.get("outputs", {})), reveal(inputs))
        changed = changed_keys(old.get("inputs", {}), inputs)
        changes = bool(changed) if diff.changes is None else diff.changes
        forced = forced_replaces(changed, goal.replace_on_changes)
        replaces = sorted({*diff.replaces, *forced}) if changes or forced else []
        return Diff(
            changes=changes, replaces=replaces, delete_before_replace=diff.delete_before_replace
        )

    def _create(
        self,
        provider: Provider,
        goal: Goal,
        old: Entry | None,
        entry: Entry,
        operation: str = "create",
    ) -> tuple[Entry, Properties]:
        """Create; `old` is an entry that the new one takes the place of."""
        with self._display.step(operation, goal.urn, inputs=entry["inputs"]):
            if self._dry_run:
                self.journal.record(entry, old)
                return entry, entry["inputs"]
            with self.journal.step("creating", entry):
                live = provider.create(reveal(entry["inputs"]))
                entry["id"] = live.id
                entry["outputs"] = self._marked(goal, entry["inputs"], live.outputs)
                self.journal.record(entry, old)
        return entry, entry["outputs"]

    def _update(
        self, provider: Provider, goal: Goal, old: Entry, entry: Entry
    ) -> tuple[Entry, Properties]:
        entry["id"] = old["id"]
        with self._display.step("update", goal.urn, old.get("inputs", {}), entry["inputs"]):
            if self._dry_run:
                self.journal.record(entry, old)
                return entry, entry["inputs"]
            with self.journal.step("updating", old):
                outputs = provider.update(
                    old["id"], reveal(old.get("outputs", {})), reveal(entry["inputs"])
                )
                entry["outputs"] = self._marked(goal, entry["inputs"], outputs)
                self.journal.record(entry, old)
        return entry, entry["outputs"]

    def _replace(
        self, provider: Provider, goal: Goal, old: Entry, entry: Entry, diff: Diff
    ) -> tuple[Entry, Properties]:
        if old.get("protect"):
            raise EngineError(
                f"{', '.join(diff.replaces)} changed, which replaces it, but it is protected; "
                "remove protect from the program first"
            )
        entry["created"] = now()
        first = goal.delete_before_replace
        if first is None:
            first = diff.delete_before_replace
        if first:
            self._delete([*self._replaced_with(old), old], keep_place=True)
            if self.stopping.is_set():
                raise StoppedError
            return self._create(provider, goal, old, entry, "replace")
        with self._display.step("replace", goal.urn, old.get("inputs", {}), entry["inputs"]):
            pass
        result = self._create(provider, goal, None, entry, "create-replacement")
        self.journal.mark(old, delete=True)
        self.journal.flush()
        return result

    def _replaced_with(self, root: Entry) -> list[Entry]:
        """Dependents that have to go before a resource is deleted to be replaced.

        As Pulumi has it: those for which an unknown value in place of what they took from the
        resource would mean a replacement.
        """
        urns = {root["urn"]}
        found = []
        for entry in self.journal.olds:
            depending = [
                key
                for key, sources in entry.get("propertyDependencies", {}).items()
                if urns & set(sources)
            ]
            if not depending or not entry.get("custom") or entry.get("delete"):
                continue
            unknown = reveal(entry["inputs"]) | dict.fromkeys(depending, UNKNOWN)
            provider = self._provider(entry["type"].partition(":")[0])
            if provider.diff(entry["id"], reveal(entry["outputs"]), unknown).replaces:
                urns.add(entry["urn"])
                found.append(entry)
        return found

    # -- deletes -------------------------------------------------------------------------------

    def _delete(self, entries: list[Entry], *, keep_place: bool = False) -> None:
        """Delete each entry after everything that depends on it, otherwise in parallel.

        Args:
            entries: what to delete.
            keep_place: leave the entry as pending replacement instead of forgetting it.
        """
        for entry in entries:
            if entry.get("protect") and not entry.get("delete"):
                self.fail(
                    entry["urn"],
                    EngineError(
                        "it is protected; remove protect from the program and run up first"
                    ),
                )
                return
        going = {entry["urn"] for entry in entries}
        waiting = list(entries)
        running: dict[Future[None], Entry] = {}
        with ThreadPoolExecutor(PARALLEL) as pool:
            while running or (waiting and not self.stopping.is_set()):
                ready = [] if self.stopping.is_set() else _leaves(waiting, running.values())
                for entry in ready:
                    waiting.remove(entry)
                    job = pool.submit(
                        copy_context().run, self._delete_one, entry, going, keep_place
                    )
                    running[job] = entry
                if not running:
                    stuck = ", ".join(entry["urn"] for entry in waiting)
                    self.fail("delete", EngineError(f"these depend on one another: {stuck}"))
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    entry = running.pop(future)
                    if (error := future.exception()) is not None:
                        self.fail(entry["urn"], error)

    def _delete_one(self, entry: Entry, going: set[str], keep_place: bool) -> None:
        is_resource = entry.get("custom") and not entry["type"].startswith(PROVIDER_TYPE)
        skipped = (
            not is_resource
            or entry.get("retainOnDelete")
            or entry.get("deletedWith") in going
            or entry.get("pendingReplacement")
        )
        operation = "delete-replaced" if entry.get("delete") or keep_place else "delete"
        with self._display.step(operation, entry["urn"]):
            if self._dry_run or skipped:
                self._forget(entry, keep_place)
                return
            with self.journal.step("deleting", entry):
                provider = self._provider(entry["type"].partition(":")[0])
                provider.delete(entry["id"], reveal(entry.get("outputs", {})))
                self._forget(entry, keep_place)

    def _forget(self, entry: Entry, keep_place: bool) -> None:
        if keep_place:
            self.journal.mark(entry, pendingReplacement=True)
            self.journal.flush()
        else:
            self.journal.drop(entry)

    # -- what is really there ------------------------------------------------------------------

    def _is_read(self, entry: Entry) -> bool:
        return bool(
            entry.get("custom")
            and not entry["type"].startswith(PROVIDER_TYPE)
            and not entry.get("delete")
            and not entry.get("pendingReplacement")
            and self._is_target(entry)
        )

    def _refresh_one(self, entry: Entry) -> None:
        if self.stopping.is_set():
            return
        provider = self._provider(entry["type"].partition(":")[0])
        live = provider.read(entry["id"], reveal(entry.get("outputs", {})))
        if live is None:
            self._display.done("gone", entry["urn"])
            self.journal.drop(entry)
            return
        old_inputs, old_outputs = entry.get("inputs", {}), entry.get("outputs", {})
        outputs = mark_like(live.outputs, old_outputs)
        outputs = _secret_keys(outputs, entry.get("additionalSecretOutputs", []))
        inputs = old_inputs if live.inputs is None else mark_like(live.inputs, old_inputs)
        changed = outputs != old_outputs or inputs != old_inputs
        if changed:
            self._display.changes("drift", entry["urn"], old_outputs, outputs)
            self.journal.mark(entry, id=live.id, inputs=inputs, outputs=outputs, modified=now())
        self._display.done("drift" if changed else "same", entry["urn"])

    def _recover_create(self, entry: Entry) -> None:
        provider = self._provider(entry["type"].partition(":")[0])
        live: Live | None = provider.find(reveal(entry.get("inputs", {})))
        held = self.journal.old([entry["urn"]])
        if live is None or (held is not None and held.get("id") == live.id):
            return
        secrets = entry.get("additionalSecretOutputs", [])
        outputs = _secret_keys(mark_like(live.outputs, entry.get("inputs", {})), secrets)
        found = {k: v for k, v in entry.items() if k != "pendingReplacement"}
        found |= {"id": live.id, "outputs": outputs}
        if held is not None and not held.get("pendingReplacement"):
            self.journal.mark(held, delete=True)
            held = None
        self.journal.adopt(found, held)

    # -- providers and targets -----------------------------------------------------------------

    def _provider(self, package: str) -> Provider:
        with self._lock:
            if package not in self._providers:
                self._providers[package] = provider_for(package, self._project.name, self._config)
            return self._providers[package]

    def _provider_reference(self, package: str) -> str:
        """`urn::id` of the package's default provider, which is an entry of the state too."""
        urn = f"urn:pulumi:{self._stack}::{self._project.name}::{PROVIDER_TYPE}{package}::default"
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

    def _is_target(self, entry: Entry) -> bool:
        if not self._targets:
            return True
        return any(fnmatchcase(entry["urn"], pattern) for pattern in self._targets)

    def _marked(
        self, goal: Goal, inputs: Properties, outputs: Properties, old: Entry | None = None
    ) -> Properties:
        marked = mark_like(outputs, old.get("outputs", {}) if old is not None else {})
        return _secret_keys(mark_like(marked, inputs), goal.additional_secret_outputs)


def _secret_keys(outputs: Properties, keys: Iterable[str]) -> Properties:
    return outputs | {key: secret(outputs[key]) for key in keys if key in outputs}


def _leaves(waiting: list[Entry], running: Iterable[Entry]) -> list[Entry]:
    """The waiting entries that nothing else that waits or runs depends on."""
    needed: set[str] = set()
    others = [*waiting, *running]
    for entry in others:
        needed |= _references(entry)
    # Two halves of a replacement share their URN: an entry never waits for itself.
    return [entry for entry in waiting if entry["urn"] not in needed]


def _references(entry: Entry) -> set[str]:
    references: set[Any] = {*entry.get("dependencies", ()), entry.get("parent")}
    for urns in entry.get("propertyDependencies", {}).values():
        references |= set(urns)
    references |= {entry.get("deletedWith"), entry.get("provider", "").rpartition("::")[0]}
    return references - {None, "", entry["urn"]}
