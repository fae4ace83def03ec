"""Instances and tags that the states of a backend's stacks know, for checks of cloud accounts.

Nothing in a state is decrypted, and nothing is written.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pulumi

from infra.machines import sources
from infra.operate import backend
from infra.operate.backend import Backend
from trainyard.access import state_folder
from trainyard.access.state_bucket import BucketError
from trainyard.access.state_folder import ORGANIZATION, DamagedStateError, StatePath


def _types(*names: str) -> set[str]:
    """Return types of resources of all clouds, as states have them."""
    return {f"pulumi-python:dynamic/{type_}" for type_ in sources.types(*names)}


ACCOUNT = _types("Account")
RENTED = _types("Instance")
TIMER = _types("Deadline")
HOLDING = _types("Instance", "SshKey", "FirewallRuleset")  # with the ids of things in an account


@dataclass(frozen=True, kw_only=True)
class RecordedStack:
    """A stack's facts about the account, from its state.

    Attributes:
        ids: of its things in the account.
        mark: id that marks its things, "" without one.
        cloud: module of the cloud that the account is of, "" without one.
        busy: whether a create began and did not end, so an instance may be missing from the state.
        expires: when the last of its instances ends itself, or should, None for never.
        ends: the end of each instance that has one, in the same form, by its id.
    """

    project: str
    name: str
    ids: frozenset[str]
    mark: str
    busy: bool
    expires: datetime | None
    organization: str = ORGANIZATION
    cloud: str = ""
    ends: Mapping[str, datetime] = field(default_factory=dict)


def read_stacks(folder: Path, place: Backend) -> list[RecordedStack]:
    """Return the stacks of a project's state backend.

    Raises:
        pulumi.RunError: one of them cannot be read.
    """
    if place.place is not None:
        try:
            with _decoding(f"in {place.url}"):
                return [_stack(*found) for found in _states(place.place)]
        except BucketError as error:
            raise pulumi.RunError(
                f"{error.filename}: {error.strerror}; look at the address and the keys of the "
                "state backend. Nothing was ended"
            ) from None
    return [_stack(*found) for found in _exports(folder, place.url)]


def machines(folder: Path, place: Backend, project: str, stack: str) -> dict[int, bool]:
    """Return the rented machines that a stack has, or has begun to launch.

    Returns:
        By number, whether the last look found the machine healthy.

    Raises:
        pulumi.RunError: the state cannot be read; it need not be there yet.
    """
    found = deployment(folder, place, project, stack)
    begun = [each["resource"] for each in found.get("pending_operations") or []]
    rented = [each for each in (*(found.get("resources") or []), *begun) if each["type"] in RENTED]
    with _decoding(f"of stack {stack}"):
        return {
            int(each["inputs"]["node"]): bool(each.get("outputs", {}).get("healthy", True))
            for each in reversed(rented)
            if not each.get("delete")
        }


def deployment(folder: Path, place: Backend, project: str, stack: str) -> dict[str, Any]:
    """Return the content of a stack's state, {} without one; secrets are encrypted.

    Raises:
        pulumi.RunError: the state cannot be read.
    """
    if place.place is None:
        whole = _pulumi(folder, "stack", "export", "--stack", stack)
        found: dict[str, Any] = json.loads(whole)["deployment"]
        return found
    path = state_folder.stack_file(place.place, project, stack)
    try:
        return state_folder.read(path).deployment if path.exists() else {}
    except (OSError, DamagedStateError) as error:
        raise pulumi.RunError(f"the state {path} cannot be read ({error}); restore it") from error


def _states(place: StatePath) -> Iterator[tuple[str, str, Any]]:
    """Yield project, stack and deployment of each state in a folder or bucket."""
    for backup in _sorted(place / "backups", "*/*"):
        names = backup.parent.name, backup.name
        state = state_folder.stack_file(place, *names)
        copies = [] if state.exists() else state_folder.copies(place, *names)
        # The CLI keeps copies of a stack that it removed: of those the newest is empty.
        if copies and not state_folder.is_empty(copies[0]):
            raise pulumi.RunError(
                f"the state {state} is missing, but there are copies of it; restore it, or remove "
                f"{backup} if the stack was removed on purpose. Nothing was ended"
            )
    if old := _sorted(place / "stacks", "*.json*"):
        raise pulumi.RunError(
            f"{old[0]} is a state of no project, as old versions of the pulumi CLI wrote them: run "
            "pulumi state upgrade. Nothing was ended"
        )
    for path in _sorted(place / "stacks", "*/*.json*"):
        if path.name.endswith((".bak", ".attrs")):
            continue
        try:
            # With the embedded engine's checksum: an id with a flipped bit would be an orphan.
            yield path.parent.name, path.stem, state_folder.read(path).deployment
        except (OSError, DamagedStateError) as error:
            raise pulumi.RunError(
                f"the state {path} cannot be read ({error}); restore it first. Nothing was ended"
            ) from error


def _sorted(folder: StatePath, pattern: str) -> list[StatePath]:
    return sorted(folder.glob(pattern), key=str)


def _exports(folder: Path, url: str) -> Iterator[tuple[str, str, Any, str]]:
    """Yield project, stack, deployment and organization of each state that the CLI reaches."""
    if shutil.which("pulumi") is None:
        raise pulumi.RunError(
            f"the states are in {url}, which needs the pulumi CLI; put it on PATH. Nothing was "
            "ended"
        )

    mine = ""  # a service leaves out the user's own organization
    for listed in json.loads(_pulumi(folder, "stack", "ls", "--all", "--json")):
        name = str(listed["name"])
        organization, project, stack = ["", "", *name.split("/")][-3:]
        if not organization and url.startswith(("https://", "http://")):
            organization = mine = mine or _pulumi(folder, "whoami").strip()
        exported = _pulumi(folder, "stack", "export", "--stack", name)
        project = project or backend.project(folder)["name"]
        yield project, stack, json.loads(exported)["deployment"], organization or ORGANIZATION


def _pulumi(folder: Path, *arguments: str) -> str:
    command = ["pulumi", *arguments, "--non-interactive"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise pulumi.RunError(f"{' '.join(command)}: {done.stderr.strip()}. Nothing was ended")
    return done.stdout


@contextmanager
def _decoding(where: str) -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = f"a state {where} has machines that this version cannot read ({error!r:.200})"
        raise pulumi.RunError(f"{text}; restore a copy of it. Nothing was ended") from None


def _stack(
    project: str, name: str, deployment: Any, organization: str = ORGANIZATION
) -> RecordedStack:
    pending = deployment.get("pending_operations") or []
    resources = deployment.get("resources") or []
    ids: set[str] = set()
    launches: dict[str, datetime] = {}
    timers: dict[str, datetime] = {}
    mark = cloud = ""
    for entry in resources:
        outputs = entry.get("outputs", {})
        if entry["type"] in HOLDING:
            ids |= {entry.get("id", ""), *outputs.get("ids", {}).values()}
        if entry["type"] in ACCOUNT:
            mark = outputs["stackId"]
            cloud = entry["type"].rpartition("/")[2].partition(":")[0]
        if entry["type"] in RENTED and outputs.get("ttlHours"):
            launched = datetime.fromisoformat(outputs["launchedAt"]).astimezone(UTC)
            launches[entry["id"]] = launched + timedelta(hours=float(outputs["ttlHours"]))
        if entry["type"] in TIMER:
            timers[entry["id"]] = datetime.fromisoformat(entry["inputs"]["at"]).astimezone(UTC)
    return RecordedStack(
        project=project,
        name=name,
        ids=frozenset(ids - {""}),
        mark=mark,
        cloud=cloud,
        organization=organization,
        busy=any(each.get("type") == "creating" for each in pending),
        # An instance without a timer yet may be part of a group, which ends with the stack.
        expires=max((timers or launches).values(), default=None),
        ends={id_: timers.get(id_, at) for id_, at in launches.items()},
    )
