"""Ownership of folders: a stack takes and removes only folders with its mark.

The mark is a file in the folder. It is written when a stack takes the folder, which must be absent,
empty or given back; nothing is ever removed where it is missing or another stack's. Knows nothing
of Pulumi, because it works on other machines too.
"""

import contextlib
import json
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from node.life import ServiceError

FILE = ".trainyard"
PRIVATE = 0o700
ADVICE = "name a folder that is absent or empty"
LIMIT_BYTES = 4096  # a mark has some hundred
FIELDS = ("id", "project", "stack", "by")

# Folders of the system. Some may be empty or absent, but a stack removes its folders in the end.
SYSTEM = frozenset(
    Path(text)
    for text in (
        *("/", "/bin", "/boot", "/cdrom", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/lib32"),  # noqa: S108
        *("/lib64", "/libx32", "/lost+found", "/media", "/mnt", "/nix", "/opt", "/proc", "/root"),
        *("/run", "/run/lock", "/run/user", "/sbin", "/snap", "/srv", "/sys", "/tmp", "/usr"),  # noqa: S108
        *("/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share", "/usr/src", "/var"),
        *("/var/cache", "/var/lib", "/var/local", "/var/lock", "/var/log", "/var/mail", "/var/opt"),
        *("/var/run", "/var/spool", "/var/tmp"),  # noqa: S108
    )
)
# Below these each user has a folder.
OF_USERS = frozenset({Path("/home"), Path("/run/user"), Path("/media")})


@dataclass(frozen=True, kw_only=True)
class FolderMark:
    """Identifies a stack.

    Attributes:
        id: drawn at random once for each stack, "" where the folder was given back.
        project, stack: their names, which another person's stack may have too.
        by: user@machine that the id was drawn by.
    """

    id: str
    project: str = ""
    stack: str = ""
    by: str = ""

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> "FolderMark":
        """Return the mark of a resource's property."""
        return cls(**{key: str(props.get(key, "")) for key in FIELDS})

    def __str__(self) -> str:
        named = f"stack {self.stack} of project {self.project}" if self.stack else "another stack"
        return f"{named}, made by {self.by}" if self.by else named

    @property
    def label(self) -> str:
        """One line for the environment of the stack's processes, the id first."""
        return f"{self.id} {self}"


def is_reserved(folder: Path) -> str:
    """Return why no stack may have a folder on any machine, "" if it may."""
    if folder in SYSTEM:
        return "is a folder of the system"
    if folder.parent in OF_USERS:
        return "is a user's own folder"
    return ""


def refusal(folder: Path) -> str:
    """Return why no stack may have a folder on this machine, "" if it may."""
    homes = [Path.home()]
    with contextlib.suppress(KeyError):  # a container need not know its user
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    kept = {
        "your home folder": homes,
        "this checkout": [Path(__file__).parents[1]],
        "this Python environment": [Path(sys.prefix)],
    }
    for path in {folder, Path(os.path.realpath(folder))}:
        if reason := is_reserved(path):
            return reason
        for name, places in kept.items():
            for place in {*places, *map(Path.resolve, places)}:
                if path == place or path in place.parents:
                    return f"is {name}" if path == place else f"holds {name} ({place})"
    return ""


def foreign(folder: Path, mark: FolderMark, *, private: bool = True) -> str:
    """Return why a folder is not this stack's, "" if it is.

    A private one must have mode 0700, and must not be a link.
    """
    if reason := _unsafe(folder, private=private):
        return reason
    if private and (mode := stat.S_IMODE(folder.stat().st_mode)) != PRIVATE:
        return f"has mode {mode:04o} and not 0700: others may have changed what is in it"
    return _of_another(folder, mark)


def refuse(
    folder: Path, mark: FolderMark, setting: str, *, private: bool = True, known: bool = False
) -> None:
    """Raise unless a stack may take a folder: one that is absent, empty, given back or its own.

    It may be known to be the stack's although it bears no mark. The setting names it.

    Raises:
        ServiceError: it may not.
    """
    named = f"{setting} = {str(folder)!r}"
    if reason := refusal(folder):
        raise ServiceError(f"{named} {reason}, and destroy removes what it names: {ADVICE}")
    if not os.path.lexists(folder):
        return
    if reason := _unsafe(folder, private=private):
        raise ServiceError(f"{named} {reason}: remove it, or set another {setting}")
    found = read_mark(folder)
    if found is None and not known and any(folder.iterdir()):
        raise ServiceError(
            f"{named} holds files and bears no mark of a stack ({FILE}), and destroy removes what "
            f"it names: {ADVICE}. To give this stack all that is in it: touch {folder / FILE}"
        )
    if found is not None and found.id and found.id != mark.id:
        raise ServiceError(
            f"{named} belongs to {found} (id {found.id}), and this stack has the id {mark.id}: "
            f"choose another name for this stack, or another {setting}. If the state of that one "
            f"is lost, end what it runs and give its folder away: truncate -s 0 {folder / FILE}"
        )
    if found is not None and found.id and private and (reason := foreign(folder, mark)):
        raise ServiceError(f"{named} {reason}. Remove it, or chmod 700 it if you did that yourself")


def take(
    folder: Path, mark: FolderMark, setting: str, *, private: bool = True, known: bool = False
) -> None:
    """Make a folder of mode 0700 that bears a stack's mark, or take an existing one.

    Raises:
        ServiceError: the stack may not have it.
    """
    refuse(folder, mark, setting, private=private, known=known)
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            try:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=PRIVATE)
            except OSError as error:
                reason = error.strerror
                raise ServiceError(
                    f"{setting} = {str(folder)!r}: {path} cannot be made ({reason}); {ADVICE}"
                ) from None
    if reason := _unsafe(folder, private=private):  # another process has just made it
        raise ServiceError(f"{setting} = {str(folder)!r} {reason}: remove it")
    found = read_mark(folder)
    if private or (found is None and not known):
        folder.chmod(PRIVATE)
    if found != mark:
        _write(folder, mark)


def give_back(folder: Path, mark: FolderMark) -> None:
    """Let any stack of this user take a folder with its content."""
    if not foreign(folder, mark, private=False):
        _write(folder, replace(mark, id=""))


def remove(folder: Path, mark: FolderMark, *, private: bool = True) -> str:
    """Remove a folder that bears the stack's mark.

    Returns:
        Why the folder is left, "" if it is gone.
    """
    if not os.path.lexists(folder):
        return ""
    reason = refusal(folder) or _unsafe(folder, private=private) or _of_another(folder, mark)
    if reason:
        return f"left: {folder} {reason}"
    # The mark goes last, so that the next destroy can remove leftovers.
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != FILE:
            path.unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] not in ([], [FILE]):
        return f"left: {folder} holds files that user {os.getuid()} cannot remove"
    shutil.rmtree(folder.resolve(), ignore_errors=True)
    if folder.is_symlink():
        folder.unlink()
    return ""


def read_mark(folder: Path) -> FolderMark | None:
    """Return the mark of a folder, one without an id for a folder that was given back.

    Returns:
        None without a mark to trust: it is another user's, not a file, or not a mark.
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return None
        text = file.read(LIMIT_BYTES)
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError:
        return None
    return FolderMark.of(found) if isinstance(found, dict) else None


def write_private(path: Path, content: str, *, durable: bool = False) -> None:
    """Write a file of mode 0600 in one step: no reader sees half of it.

    A durable one is whole after a power failure too.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)


def _write(folder: Path, mark: FolderMark) -> None:
    # An empty mark would give the folder away.
    write_private(folder / FILE, f"{json.dumps(asdict(mark))}\n", durable=True)


def _unsafe(folder: Path, *, private: bool) -> str:
    try:
        found = folder.lstat() if private else folder.stat()
    except OSError:
        return "is not there"
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.getuid():
        return f"belongs to user {found.st_uid}, who could read and change what is in it"
    if found.st_mode & stat.S_IWOTH and not private:
        return f"can be changed by every user (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _of_another(folder: Path, mark: FolderMark) -> str:
    found = read_mark(folder)
    if found is None or not found.id:
        return f"bears no mark of this stack ({FILE})"
    return "" if found.id == mark.id else f"belongs to {found}"
