"""Pulumi's backends of files: states, their backups and locks, written so that nothing is lost.

They are the pulumi CLI's own (`trainyard/access/state_folder.py`), so either tool can take over the
other's stack.
"""

import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import bucket_lock, files, history, lock
from engine.crypto import Crypter
from engine.errors import EngineError, SupersededError, UnsupportedError
from engine.project import Project
from engine.recorded import is_believable, name_kind
from engine.values import decrypt, encrypt, holds_secret
from trainyard.access import state_folder, users_file
from trainyard.access.state_bucket import BucketError, BucketPath, BucketUrlError
from trainyard.access.state_folder import ORGANIZATION, Checkpoint, StatePath
from trainyard.failpoints import reach

VERSION = 3  # of the checkpoint format
FEATURES_VERSION = 4  # of a state with features of the CLI that it names, such as taints
# Suffixes of states that the CLI wrote compressed, and the variable that asks for it.
COMPRESSED = {".gz": "PULUMI_DIY_BACKEND_GZIP", ".zst": "PULUMI_DIY_BACKEND_ZSTD"}
PROPERTY_FIELDS = ("inputs", "outputs")
STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_TYPE = "pulumi:providers:"
BACKUPS_KEPT = 50  # of a stack; an operation that changes nothing makes none
# Marks of a resource that mean steps the engine does not know.
REFERENCE_TYPE = "pulumi:pulumi:StackReference"  # external: it is of another stack
REFUSED_FIELDS = ("external", "viewOf", "replacementTrigger", "resourceHooks")

Entry = dict[str, Any]  # one resource, as Pulumi's ResourceV3 with secrets in the clear


@dataclass
class State:
    """The records of a stack's resources.

    Attributes:
        resources: ordered; each follows its dependencies.
        pending: operations that were begun and not ended: {"resource", "type"}.
        salt: encryption salt that the ciphertexts were made with, "" for a new stack.
        sealed: False when its writer may not know the passphrase, such as the CLI.
    """

    resources: list[Entry] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    salt: str = ""
    sealed: bool = True


def now() -> str:
    """The time as Go writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def needs(entry: Entry) -> set[str]:
    """URNs that a resource depends on, as a whole or by one property."""
    by_property = entry.get("propertyDependencies", {}).values()
    return {*entry.get("dependencies", ()), *(urn for urns in by_property for urn in urns)}


def stack_outputs(resources: Iterable[Entry]) -> dict[str, Any]:
    """Outputs of the stack itself; none before its first operation has ended."""
    return next((each.get("outputs", {}) for each in resources if each["type"] == STACK_TYPE), {})


def is_living(entry: Entry) -> bool:
    """True for what a provider made, unless it is on its way out."""
    going = entry.get("delete") or entry.get("pendingReplacement")
    return is_managed(entry) and not going


def is_managed(entry: Entry) -> bool:
    """True for what a provider made, not for components, default providers and references."""
    made = entry.get("custom") and not entry.get("external")
    return bool(made) and not entry["type"].startswith(PROVIDER_TYPE)


class Backend:
    """A folder, or a bucket, with the states of stacks.

    Its url is `file://…`, relative to a root, or `s3://…`; "" is that of the logged-in user.

    Raises:
        UnsupportedError: the url is of another kind.
        EngineError: it is the url of a bucket, and cannot be used; or the login cannot be read.
    """

    def __init__(self, url: str, root: Path) -> None:
        try:
            url = url or state_folder.logged_in()
            folder = state_folder.find(url, root)
        except (BucketUrlError, state_folder.LoginError) as error:
            raise EngineError(str(error)) from None
        if folder is None:
            raise UnsupportedError(f"the state backend {url!r}")
        self.folder = folder
        self._seen: dict[tuple[str, str], str | None] = {}  # tags of states, as read or written
        self._holds: dict[tuple[str, str], lock.Hold] = {}
        self._began = time.time_ns()
        scheme = "" if isinstance(folder, BucketPath) else state_folder.SCHEME
        self.url = f"{scheme}{folder.parent}"

    @classmethod
    def of(cls, project: Project) -> "Backend":
        """The backend that PULUMI_BACKEND_URL, else the project, else the user's login names."""
        return cls(os.environ.get(state_folder.URL) or project.backend_url, project.root)

    def stack_file(self, project: str, stack: str) -> StatePath:
        return state_folder.stack_file(self.folder, project, stack)

    def stacks(self, project: str) -> list[str]:
        """Names of the project's stacks that have a state."""
        return sorted(path.stem for path in (self.folder / "stacks" / project).glob("*.json"))

    def backups(self, project: str, stack: str) -> list[StatePath]:
        """Copies of earlier states, the newest first."""
        return state_folder.copies(self.folder, project, stack)

    def exists(self, project: str, stack: str) -> bool:
        """True when the stack has a state.

        A removed stack has none, although the CLI keeps copies of its last, empty state.

        Raises:
            EngineError: the state is gone, and the newest copy of it has resources.
        """
        path = self.stack_file(project, stack)
        for suffix, variable in COMPRESSED.items():
            if path.with_suffix(f".json{suffix}").exists():
                raise UnsupportedError(f"compressed states ({variable})")
        if path.exists():
            return True
        copies = self.backups(project, stack)
        if copies and not state_folder.is_empty(copies[0]):
            raise self._damaged(project, stack, "is missing")
        return False

    def load(self, project: str, stack: str, passphrase: str) -> State:
        """The stack's state with secrets decrypted; an empty one for a new stack.

        Raises:
            EngineError: the file is damaged or the passphrase is wrong; nothing was touched.
        """
        if not self.exists(project, stack):
            self._seen[project, stack] = None
            return State()
        checkpoint = self._read(project, stack)
        latest = checkpoint.deployment
        providers = latest.get("secrets_providers") or {}
        if providers and providers.get("type") != "passphrase":
            raise UnsupportedError(f"the secrets provider {providers.get('type')!r}")
        for entry in latest.get("resources") or []:
            refused = REFUSED_FIELDS if entry["type"] != REFERENCE_TYPE else REFUSED_FIELDS[1:]
            if marks := [field for field in refused if entry.get(field)]:
                raise UnsupportedError(f"{', '.join(marks)} in the state (of {entry['urn']})")
        salt = salt_of(latest)
        state = State(
            resources=latest.get("resources") or [],
            pending=latest.get("pending_operations") or [],
            salt=salt,
            sealed=bool(checkpoint.seal),
        )
        crypter = Crypter(passphrase, salt) if salt else None
        if checkpoint.seal and not _holds(checkpoint, crypter):
            raise self._damaged(project, stack, "was changed by somebody without its passphrase")
        for entry in (*state.resources, *(op["resource"] for op in state.pending)):
            for name in PROPERTY_FIELDS:
                if crypter is not None and name in entry:
                    try:
                        entry[name] = decrypt(entry[name], crypter.decrypt)
                    except (LookupError, ValueError, TypeError, AttributeError, EngineError):
                        what = f"holds a secret that cannot be decrypted (of {entry['urn']})"
                        raise self._damaged(project, stack, what) from None
                elif holds_secret(entry.get(name)):
                    raise self._damaged(project, stack, "holds secrets, and no salt to read them")
                if not is_believable(entry.get(name, {})):
                    what = f"has a provider in the clear that is not a name (of {entry['urn']})"
                    raise self._damaged(project, stack, what)
            name_kind(entry)
        return state

    def read_raw(self, project: str, stack: str) -> dict[str, Any]:
        """The stack's deployment as it stands in the file, checked, secrets still encrypted.

        Raises:
            EngineError: the file is damaged.
        """
        return self._read(project, stack).deployment

    def _read(self, project: str, stack: str) -> Checkpoint:
        try:
            content, tag = _tagged(self.stack_file(project, stack))
            checkpoint = state_folder.parse(content)
            if checkpoint.version == FEATURES_VERSION:
                raise UnsupportedError(f"the features {checkpoint.features} of the state")
            if checkpoint.version != VERSION:
                raise ValueError(f"has format {checkpoint.version}, not {VERSION}")
            _check_resources(checkpoint.deployment, stack, project)
        except ValueError as error:
            raise self._damaged(project, stack, f"is damaged ({error})") from None
        self._seen[project, stack] = tag
        return checkpoint

    def save(self, project: str, stack: str, state: State, crypter: Crypter) -> None:
        """Replace the state that was read or written last, at once and durably.

        Raises:
            SupersededError: another operation holds the stack, or has written its state. This state
                is kept elsewhere, and the message says where. Or the lock was removed: then the
                state is written, and the operation has to stop.
            EngineError: it could not be written; the former file is untouched.
        """

        def sealed(entry: Entry) -> Entry:
            parts = {name: entry[name] for name in PROPERTY_FIELDS if entry.get(name)}
            # As the CLI: a field without properties is left out.
            rest = {name: value for name, value in entry.items() if name not in PROPERTY_FIELDS}
            written: Entry = rest | encrypt(parts, crypter.encrypt)
            return written

        latest: dict[str, Any] = {
            "manifest": {"time": now(), "magic": "", "version": ""},
            "secrets_providers": {"type": "passphrase", "state": {"salt": crypter.salt}},
            "resources": [sealed(entry) for entry in state.resources],
            "metadata": {},
        }
        if state.pending:
            latest["pending_operations"] = [
                op | {"resource": sealed(op["resource"])} for op in state.pending
            ]
        checkpoint = {"stack": f"{ORGANIZATION}/{project}/{stack}", "latest": latest}
        digest = state_folder.digest(checkpoint)
        document = {"version": VERSION, "checkpoint": checkpoint, "sha256": digest}
        document["seal"] = crypter.seal(digest)
        content = json.dumps(document, indent=4).encode()
        path, hold = self.stack_file(project, stack), self._holds.get((project, stack))
        try:
            who = hold.lost() if hold is not None else None
            if who:
                raise self._superseded(project, stack, state, content, f"is locked by {who}")
            self._prepare(project, stack)
            reach("state.write")
            self._seen[project, stack] = self._swap(project, stack, path, content)
            reach("state.written")
        except FileExistsError:
            why = "was written by another operation"
            raise self._superseded(project, stack, state, content, why) from None
        except OSError as error:
            raise _unwritten(path, error) from None
        if who == "":
            raise SupersededError(
                f"the lock of this operation on {stack} was removed, so it stops. What it did is "
                "in the state: run the command again"
            )

    def _swap(self, project: str, stack: str, path: StatePath, content: bytes) -> str:
        """Replace the state that was read last; return the new tag.

        Raises:
            FileExistsError: another state was written since.
        """
        seen = self._seen.get((project, stack))
        if isinstance(path, Path):
            files.make_folder(path.parent)
            with users_file.exclusive(path.parent):
                if (_tagged(path)[1] if path.exists() else None) != seen:
                    raise FileExistsError
                self._put(project, stack, path, content)
            return hashlib.sha256(content).hexdigest()
        try:
            return path.create(content) if seen is None else path.replace(content, seen)
        except FileExistsError:
            # Ours where the answer was lost and the request sent again.
            with suppress(FileNotFoundError):
                found, tag = path.read_tagged()
                if found == content:
                    return tag
            raise

    def _superseded(
        self, project: str, stack: str, state: State, content: bytes, why: str
    ) -> SupersededError:
        """Keep a copy of a state that is not written; say where, and what only that one has."""
        path = self.stack_file(project, stack)
        copy = self.folder / "refused" / project / stack / f"{stack}.{self._began}.json"
        known: set[tuple[str, str]] = set()
        with suppress(OSError, ValueError, LookupError, TypeError):
            theirs = state_folder.read(path).deployment.get("resources") or []
            known = {(entry["urn"], entry.get("id", "")) for entry in theirs}
        made = [
            (each["urn"], each["id"])
            for each in state.resources
            if each.get("id") and not each["type"].startswith(PROVIDER_TYPE)
        ]
        only = [f"{each[0].rpartition('::')[2]} ({each[1]})" for each in made if each not in known]
        try:
            self._put(project, stack, copy, content)
            kept = f"is kept as {copy}"
        except OSError as error:
            kept = f"could not be kept as {copy} either ({error.strerror})"
        action = (
            f"only that one has {', '.join(only)}: look whether they exist, and delete by "
            "hand those that nobody needs, since they may be billed"
            if only
            else "the other one has all that is in it"
        )
        return SupersededError(
            f"{path} {why}, so this operation stops and does not overwrite it. Its own state "
            f"{kept}; {action}"
        )

    def back_up(self, project: str, stack: str) -> None:
        """Keep a copy of the state next to it, before an operation changes it."""
        path = self.stack_file(project, stack)
        if path.exists():
            self._write(project, stack, path.with_suffix(".json.bak"), path.read_bytes())

    def archive(self, project: str, stack: str) -> None:
        """Keep a copy of the state among the backups, after an operation that changed it."""
        path = self.stack_file(project, stack)
        if not path.exists():
            return  # nothing was created
        content = path.read_bytes()
        kept = state_folder.archived(self.folder, project, stack)
        if kept and kept[0].read_bytes() == content:
            return
        copy = self.folder / "backups" / project / stack / f"{stack}.{time.time_ns()}.json"
        self._write(project, stack, copy, content)
        for old in kept[BACKUPS_KEPT - 1 :]:
            with suppress(OSError):  # the next operation tries again
                old.unlink()

    def note(self, project: str, stack: str, document: bytes) -> None:
        """Keep what an operation did; `document` is what `history.document` returns."""
        place = history.folder(self.folder, project, stack)
        self._write(project, stack, place / f"{stack}-{time.time_ns()}.history.json", document)
        for old in history.files(place)[history.KEPT :]:
            with suppress(OSError):  # the next operation tries again
                old.unlink()

    def history(self, project: str, stack: str) -> list[dict[str, Any]]:
        """The stack's operations, the newest first."""
        return history.operations(history.folder(self.folder, project, stack))

    def remove(self, project: str, stack: str) -> None:
        """Forget the stack: its state, backups and history, including the CLI's."""
        path = self.stack_file(project, stack)
        backups = self.folder / "backups" / project / stack
        refused = self.folder / "refused" / project / stack
        for folder in (history.folder(self.folder, project, stack), backups, refused):
            for copy in [*folder.glob(f"{stack}*")]:
                copy.unlink(missing_ok=True)
        for suffix in (".pulumi-tags", ".json.bak", ".json"):
            path.with_suffix(suffix).unlink(missing_ok=True)

    @contextmanager
    def lock(self, project: str, stack: str) -> Iterator[list[str]]:
        """Hold the stack for one operation, as the pulumi CLI does.

        Yields:
            Notes on locks that were taken over because the process that made them is dead.

        Raises:
            EngineError: another process holds it.
            BucketError: the store refuses, or does not answer.
        """
        folder = self._locks(project, stack)
        with ExitStack() as held:
            try:
                if isinstance(folder, BucketPath):
                    hold = held.enter_context(bucket_lock.hold(folder, now()))
                else:
                    beside = temporary(self.folder, project, stack, "lock")
                    hold = held.enter_context(lock.hold(folder, beside, now()))
            except BucketError:
                raise  # making room does not help
            except OSError as error:
                raise EngineError(
                    f"the lock folder {folder} cannot be written ({error.strerror}); make room "
                    "there, or set PULUMI_BACKEND_URL to a folder that can be written"
                ) from None
            self._holds[project, stack] = hold
            held.callback(self._holds.pop, (project, stack))
            yield hold.notes

    def in_use_by(self, project: str, stack: str) -> str:
        """Return who may be working on the stack, "" for nobody."""
        return lock.in_use_by(self._locks(project, stack))

    def unlock(self, project: str, stack: str) -> list[str]:
        """Remove all locks of the stack; return their holders.

        Raises:
            EngineError: the process of one is alive.
        """
        return lock.cancel(self._locks(project, stack))

    def _locks(self, project: str, stack: str) -> StatePath:
        return self.folder / "locks" / ORGANIZATION / project / stack

    def _write(self, project: str, stack: str, path: StatePath, content: bytes) -> None:
        try:
            self._prepare(project, stack)
            self._put(project, stack, path, content)
        except OSError as error:
            raise _unwritten(path, error) from None

    def _prepare(self, project: str, stack: str) -> None:
        meta = self.folder / "meta.yaml"
        if not meta.exists():
            self._put(project, stack, meta, b"version: 1\n")

    def _put(self, project: str, stack: str, path: StatePath, content: bytes) -> None:
        # Secrets inside are encrypted; the rest is private, too.
        if isinstance(path, Path):
            files.make_folder(path.parent)
            files.replace(path, content, temporary(self.folder, project, stack, "state"))
        else:
            path.write_bytes(content)

    def _damaged(self, project: str, stack: str, what: str) -> EngineError:
        path = self.stack_file(project, stack)
        backups = self.backups(project, stack)
        action = f"restore it: {copying(backups[0], path)}" if backups else "it has no backup"
        return EngineError(f"the state {path} {what}; nothing was changed; {action}")


def _tagged(place: StatePath) -> tuple[bytes, str]:
    """The content of a file or an object, and a tag of just this content."""
    if not isinstance(place, Path):
        return place.read_tagged()
    content = place.read_bytes()
    return content, hashlib.sha256(content).hexdigest()


def _unwritten(path: StatePath, error: OSError) -> EngineError:
    remedy = "make room for it" if isinstance(path, Path) else "look at the store and its keys"
    return EngineError(
        f"{path} could not be written ({error.strerror}); the last good state is kept: "
        f"{remedy} and run the command again"
    )


def _holds(checkpoint: Checkpoint, crypter: Crypter | None) -> bool:
    """Whether a seal is of this passphrase and state."""
    return crypter is not None and hmac.compare_digest(
        crypter.seal(checkpoint.digest).encode(), checkpoint.seal.encode(errors="replace")
    )


def salt_of(deployment: dict[str, Any]) -> str:
    """The encryption salt of a deployment, "" where it has none."""
    providers = deployment.get("secrets_providers") or {}
    return str((providers.get("state") or {}).get("salt", ""))


def copying(source: StatePath, target: StatePath) -> str:
    """The command that copies a state over another."""
    if isinstance(source, Path):
        return f"cp {source} {target}"
    endpoint = f" --endpoint-url {source.endpoint}" if source.endpoint else ""
    return f"aws s3 cp {source} {target}{endpoint}"


def temporary(folder: StatePath, project: str, stack: str, use: str) -> Path:
    """A name for a file that is being written for a stack in a folder of states.

    It is in the top folder, so that a list of stacks never has half a file. Each stack has one, and
    its lock is held: the next write takes over the leftover of a kill.
    """
    return Path(str(folder)) / f".tmp-{use}-{project}~{stack}"  # no name of a stack holds a ~


def _check_resources(latest: dict[str, Any], stack: str, project: str) -> None:
    """Raise ValueError for entries that would make an operation act on the wrong thing."""
    resources, pending = latest.get("resources") or [], latest.get("pending_operations") or []
    for entry in (*resources, *(op["resource"] for op in pending)):
        urn = entry.get("urn", "")
        if not urn.startswith(f"urn:pulumi:{stack}::{project}::"):
            raise ValueError(f"resource {urn} is not of this stack")
        managed = entry.get("custom") and not entry.get("external")
        if managed and "provider" not in entry and not entry["type"].startswith(PROVIDER_TYPE):
            raise ValueError(f"resource {urn} has no provider")
    seen: set[str] = set()
    for entry in resources:
        urn = entry["urn"]
        if entry.get("custom") and not entry.get("id") and not entry.get("pendingReplacement"):
            raise ValueError(f"resource {urn} has no id")
        references = {*needs(entry), entry.get("parent") or urn}
        if "provider" in entry:
            references.add(entry["provider"].rpartition("::")[0])
        seen.add(urn)
        if missing := references - seen:
            raise ValueError(f"{urn} refers to {min(missing)}, which does not come before it")
