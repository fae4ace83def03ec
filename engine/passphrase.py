"""The passphrase that the secrets of stacks are encrypted with: finding and making it."""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from engine import files
from engine.errors import EngineError
from trainyard.access import terminal, users_file

PHRASE = "PULUMI_CONFIG_PASSPHRASE"
FILE = "PULUMI_CONFIG_PASSPHRASE_FILE"
RANDOM_BYTES = 32
# What `make` writes: base64 of so many bytes. Few people type as many different characters.
DRAWN, LEAST_DIFFERENT = re.compile(r"[\w-]{42}[AEIMQUYcgkosw048]", re.ASCII), 20
LIMIT = 65536  # bytes, at most, of a passphrase
OTHERS = 0o077
ROOT = 0


def passphrase() -> str:
    """The passphrase of Pulumi's own variables, else of this user's file for Trainyard.

    An empty PULUMI_CONFIG_PASSPHRASE is a passphrase, as it is for the CLI; an empty file is not.

    Raises:
        EngineError: no variable is set, or the file cannot be trusted.
    """
    if (phrase := os.environ.get(PHRASE)) is not None:
        return phrase
    return read_file(Path(source()).expanduser())


def source() -> str:
    """The origin of this user's passphrase: a variable or a file."""
    return PHRASE if PHRASE in os.environ else os.environ.get(FILE) or str(default_file())


def is_set() -> bool:
    """Whether Pulumi's variables name a passphrase."""
    return PHRASE in os.environ or bool(os.environ.get(FILE))


def is_drawn(phrase: str) -> bool:
    """Whether a passphrase is the one that `make` drew at random, by its form and its file."""
    if DRAWN.fullmatch(phrase) is None or len({*phrase}) < LEAST_DIFFERENT:
        return False
    with suppress(EngineError, OSError):
        return read_file(default_file()) == phrase
    return False


def default_file() -> Path:
    """The file in which `make up` keeps the passphrase of a user who has set none."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "trainyard" / "passphrase"


def read_file(path: Path) -> str:
    """The passphrase in a file.

    Raises:
        EngineError: it cannot be read, is empty, or others may read or have written it.
    """
    try:
        with path.open("rb") as file:
            _refuse_others(path, os.fstat(file.fileno()))
            text = file.read(LIMIT).decode().strip()
    except OSError as error:
        raise EngineError(
            f"no passphrase: {path} cannot be read ({error.strerror}); set {PHRASE} or {FILE}, or "
            "run `make up`"
        ) from None
    except UnicodeDecodeError:
        raise EngineError(f"the passphrase file {path} is not text; restore your copy") from None
    if not text:
        # Unchanged, it would encrypt with a key that everybody knows.
        raise EngineError(
            f"the passphrase file {path} is empty; restore your copy of it, or if no stack was "
            "made with it, remove it and run `make up`"
        )
    return text


def make() -> Path:
    """This user's file, with a new random passphrase if the file is missing.

    Raises:
        EngineError: it cannot be written; no file is left.
    """
    path = default_file()
    try:
        files.make_folder(path.parent, mode=0o700)
        # Two processes at a time have to go on with the same passphrase.
        with users_file.exclusive(path.parent):
            if not os.path.lexists(path):
                text = f"{secrets.token_urlsafe(RANDOM_BYTES)}\n"
                files.replace(path, text.encode(), path.with_name(".passphrase.new"))
                terminal.say(f"made the passphrase of your stacks' secrets: {path}")
    except OSError as error:
        raise EngineError(
            f"the passphrase file {path} cannot be made ({error.strerror}); make its "
            f"folder writable, with room for it, or set {PHRASE} or {FILE}"
        ) from None
    return path


def _refuse_others(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), ROOT):
        raise EngineError(
            f"the passphrase file {path} belongs to the user with id {found.st_uid}, who knows "
            "what is in it; use one of your own"
        )
    if (mode := stat.S_IMODE(found.st_mode)) & OTHERS:
        raise EngineError(
            f"others may read the passphrase file {path} (mode {mode:04o}, at most 0600): "
            f"chmod 600 {path}"
        )
