"""`secrets rotate`: a stack's state and settings encrypted again, with a new key.

These are two files, and a kill may come between them. So each is opened with the one of the two
passphrases that fits, and running the same command again completes the rotation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import replace
from engine.crypto import Crypter
from engine.errors import EngineError
from engine.project import Project, read_settings
from engine.state import Backend, salt_of
from trainyard.access import settings_file, users_file

# As Pulumi writes them into the settings file; a ciphertext is base64, so nothing is quoted.
SALT = re.compile(r"^(encryptionsalt:\s*)(v1:[\w+/=:]+)\s*$", re.MULTILINE)
SECURE = re.compile(r"(\bsecure:\s*)(v1:[\w+/=]+:[\w+/=]+)")


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """Numbers of secrets in the settings, of resources, and of copies that stay as they were."""

    settings: int
    resources: int
    backups: int


def rotate(project: Project, stack: str, backend: Backend, old: str, new: str) -> Rotated:
    """Encrypt a stack's secrets with a new key; the same passphrase also gives another one.

    Raises:
        EngineError: it could not begin, or a file could not be written; each is wholly old or
            wholly new, and the same call completes the rotation.
    """
    with backend.lock(project.name, stack), users_file.exclusive(project.root):
        latest = backend.read_raw(project.name, stack)
        salt = salt_of(latest)
        state = backend.load(project.name, stack, _opening(salt, old, new) if salt else new)
        path = project.root / f"Pulumi.{stack}.yaml"
        text = users_file.read(path) if path.is_file() else ""
        crypter = Crypter.fresh(new)
        found = SALT.search(text)
        _check_form(path, text, found is not None)
        own = found[2] if found else salt
        if own:
            # Reports a value that cannot be read, before anything is written.
            phrase = _opening(own, old, new)
            read_settings(project, stack, own, phrase=phrase)
            former = Crypter(phrase, own)
            text, count = SECURE.subn(
                lambda match: match[1] + crypter.encrypt(former.decrypt(match[2])), text
            )
            text = SALT.sub(lambda match: match[1] + crypter.salt, text)
            if count and not found:
                text = f"encryptionsalt: {crypter.salt}\n{text}"
        else:
            count = 0
        backend.back_up(project.name, stack)
        if text:
            replace(path, text)
        backend.save(project.name, stack, state, crypter)
        return Rotated(
            settings=count,
            resources=len(state.resources),
            backups=len(backend.backups(project.name, stack)),
        )


def _check_form(path: Path, text: str, has_salt: bool) -> None:
    """Refuse settings of which a part would stay as it is and become unreadable.

    Raises:
        EngineError: a secret or the salt is written in another way than Pulumi does.
    """
    try:
        whole = settings_file.load(text, path.name)
    except ValueError:
        return  # read_settings reports it
    if not isinstance(whole, dict):
        return
    if len(SECURE.findall(text)) != _secured(whole) or has_salt != ("encryptionsalt" in whole):
        raise EngineError(
            f"{path} has a secret or the salt in quotes or with a comment behind it, which cannot "
            "be replaced: write each on a line of its own, as `secure: v1:…` and "
            "`encryptionsalt: v1:…`; nothing was changed"
        )


def _secured(value: Any) -> int:
    """The number of secrets in a part of the settings."""
    if isinstance(value, Mapping):
        own = isinstance(value.get("secure"), str) and len(value) == 1
        return own + sum(map(_secured, value.values()))
    return sum(map(_secured, value)) if isinstance(value, list) else 0


def _opening(salt: str, *phrases: str) -> str:
    """The passphrase that a salt was made with.

    Raises:
        EngineError: it is not one of these.
    """
    for phrase in phrases[:-1]:
        try:
            Crypter(phrase, salt)
        except EngineError:
            continue
        return phrase
    Crypter(phrases[-1], salt)
    return phrases[-1]
