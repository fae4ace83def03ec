"""Finds and reads the states of stacks: Pulumi's file backends.

The layout and the JSON are the pulumi CLI's own (`.pulumi/stacks/<project>/<stack>.json` and so
on). Two keys are the embedded engine's: `sha256` over the checkpoint, so that a flipped bit is
noticed, and `seal`, which only the passphrase can make from it. The CLI ignores and drops both.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.access import state_bucket
from trainyard.access.state_bucket import BucketPath

URL = "PULUMI_BACKEND_URL"  # takes precedence over the project's, and that over the login
ORGANIZATION = "organization"  # the only one of backends without organizations
SCHEME = "file://"

DEPTH = 64  # of values in each other; the protocol of providers has fewer
HALF = re.compile("[\ud800-\udfff]")  # of a character: no text that can be printed
# Types of the parts of a deployment that code relies on: [kind] is a list, {...: kind} an object.
TEXTS, FLAGS = ("urn", "type", "id", "parent", "provider", "deletedWith"), ("custom", "delete")
RESOURCE: dict[Any, Any] = {
    **dict.fromkeys(TEXTS, str),
    **dict.fromkeys((*FLAGS, "external", "protect", "retainOnDelete", "pendingReplacement"), bool),
    **dict.fromkeys(("inputs", "outputs"), dict),
    "dependencies": [str],
    "additionalSecretOutputs": [str],
    "propertyDependencies": {...: [str]},
    "customTimeouts": {...: int | float},
}
DEPLOYMENT = {
    "resources": [RESOURCE],
    "pending_operations": [{"type": str, "resource": RESOURCE}],
    "secrets_providers": {"state": {"salt": str}},
}
NEEDED = {"type", "resource"}

StatePath = Path | BucketPath
"""A folder, or a prefix of a bucket, and everything below."""


class LoginError(Exception):
    """The login of the pulumi CLI cannot be read; the message says what to do."""


class DamagedStateError(ValueError):
    """A state's file has invalid content; the message says why, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The content of a state's file."""

    version: int  # of its format
    features: Any  # of the CLI that its reader has to know
    deployment: dict[str, Any]  # resources, pending operations and more; secrets are encrypted
    digest: str  # checksum of the checkpoint
    seal: str  # made from that by the embedded engine's passphrase, "" where the CLI wrote it


def logged_in() -> str:
    """Return the URL of the backend that `pulumi login` chose, else of the local one.

    Raises:
        LoginError: only the CLI can read the login.
    """
    home = Path(os.environ.get("PULUMI_HOME") or "~/.pulumi").expanduser()
    path = Path(os.environ.get("PULUMI_CREDENTIALS_PATH") or home) / "credentials.json"
    try:
        text = path.read_text()
        # An empty file is not a login, as for the CLI.
        current = json.loads(text).get("current", "") if text else ""
        _check(current, str, "current")
    except OSError:
        current = ""
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise LoginError(
            f"the login in {path} cannot be read: it is damaged, or encrypted for the pulumi CLI "
            f"(PULUMI_CREDENTIAL_STORE). Set {URL} to where the states are"
        ) from None
    # Not `file://~`: the CLI takes the home of the user database for it, which need not be $HOME.
    return current or f"{SCHEME}{Path.home()}"


def find(url: str, root: Path) -> StatePath | None:
    """Return the place of a backend's states, None for one that keeps them behind an API.

    Args:
        url: of the backend.
        root: folder that a relative url is relative to.

    Raises:
        BucketUrlError: it names a bucket, and cannot be used.
    """
    if not url.startswith(SCHEME):
        return state_bucket.find(url)
    return (root / Path(url.removeprefix(SCHEME)).expanduser()).resolve() / ".pulumi"


def stack_file(folder: StatePath, project: str, stack: str) -> StatePath:
    """Return the file of a stack's state."""
    return folder / "stacks" / project / f"{stack}.json"


def archived(folder: StatePath, project: str, stack: str) -> list[StatePath]:
    """Return copies of a stack's earlier states, the newest first."""
    found = (folder / "backups" / project / stack).glob(f"{stack}.*.json")
    named = [path for path in found if path.suffixes[-2][1:].isdecimal()]
    return sorted(named, key=lambda path: int(path.suffixes[-2][1:]), reverse=True)


def copies(folder: StatePath, project: str, stack: str) -> list[StatePath]:
    """Return all copies of a stack's earlier states, the newest first."""
    beside = stack_file(folder, project, stack).with_suffix(".json.bak")
    found = archived(folder, project, stack)
    if not beside.exists():
        return found
    # The copy next to it is made before an operation, the archived one after it.
    written = beside.stat().st_mtime_ns if isinstance(beside, Path) else beside.modified_ns()
    newer = not found or written > int(found[0].suffixes[-2][1:])
    return [beside, *found] if newer else [*found[:1], beside, *found[1:]]


def is_empty(copy: StatePath) -> bool:
    """Return whether a copy of a state certainly has no resource, as after a removal."""
    try:
        deployment = read(copy).deployment
    except (OSError, ValueError):
        return False
    return not (deployment.get("resources") or deployment.get("pending_operations"))


def read(path: StatePath) -> Checkpoint:
    """Read the file of a state.

    Raises:
        DamagedStateError: it is not a whole state, or somebody changed it.
        OSError: it cannot be read.
    """
    return parse(path.read_bytes())


def parse(content: bytes) -> Checkpoint:
    """Read the content of a state's file.

    Raises:
        DamagedStateError: it is not a whole state, or somebody changed it.
    """
    try:
        document = json.loads(content)
        checkpoint = document["checkpoint"]
        found = digest(checkpoint)
        if document.get("sha256", found) != found:
            raise ValueError("its checksum differs")
        latest = checkpoint["latest"] or {}
        _check(latest, DEPLOYMENT, "latest")
        _check_depth(latest)
        if ("sha256" in document) != ("seal" in document):
            raise ValueError("it has lost its checksum or its seal")
        return Checkpoint(
            version=document["version"],
            features=document.get("features"),
            deployment=latest,
            digest=found,
            seal=str(document.get("seal", "")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedStateError(str(error)[:500]) from None


def _check(value: Any, kind: Any, where: str) -> None:
    """Check a part of a deployment, and leave out what is null: to Go, that is nothing.

    Raises:
        ValueError, TypeError: it has the wrong type, or lacks something.
    """
    base: Any = type(kind) if isinstance(kind, list | dict) else kind
    if not isinstance(value, base) or (base is str and HALF.search(value)):
        raise TypeError(f"{where} is {value!r:.80}")
    if isinstance(kind, list):
        for each in value:
            _check(each, kind[0], where)
    elif isinstance(kind, dict):
        for key, each in [*value.items()]:
            if each is None:
                del value[key]
            elif wanted := kind.get(key, kind.get(...)):
                _check(each, wanted, f"{where}.{key}")
        if missing := NEEDED & kind.keys() - value.keys():
            raise ValueError(f"{where} lacks {min(missing)}")


def _check_depth(value: Any, left: int = DEPTH) -> None:
    if not left:
        raise ValueError(f"it is more than {DEPTH} values deep")
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            _check_depth(part, left - 1)


def digest(checkpoint: Any) -> str:
    """Return the checksum of a checkpoint."""
    text = json.dumps(checkpoint, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
