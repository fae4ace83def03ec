"""`secrets rotate`: a stack's state and settings encrypted again, with a new key.

These are two files, and a kill may come between them. So each is opened with the one of the two
passphrases that fits, and running the same command again completes the rotation.
"""

from dataclasses import dataclass

from engine.config import SettingsFile
from engine.crypto import Crypter
from engine.errors import EngineError
from engine.project import Project, read_settings
from engine.state import Backend, salt_of
from trainyard.access import users_file


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
        settings, crypter = SettingsFile(project, stack), Crypter.fresh(new)
        count, own = 0, settings.salt or salt
        if own:
            # Reports a value that cannot be read, before anything is written.
            phrase = _opening(own, old, new)
            read_settings(project, stack, own, phrase=phrase)
            count = settings.encrypt_again(Crypter(phrase, own), crypter)
        backend.back_up(project.name, stack)
        if count or settings.salt:
            settings.write()
        backend.save(project.name, stack, state, crypter)
        return Rotated(
            settings=count,
            resources=len(state.resources),
            backups=len(backend.backups(project.name, stack)),
        )


def _opening(salt: str, old: str, new: str) -> str:
    """The passphrase that a salt was made with."""
    try:
        Crypter(old, salt)
    except EngineError:
        Crypter(new, salt)
        return new
    return old
