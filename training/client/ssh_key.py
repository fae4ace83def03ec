"""The key that logs in at a stack's host: a file, the stack's outputs, or the user's SSH agent."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import asyncssh
from asyncssh.public_key import decode_ssh_public_key

from training.client.errors import ClientError
from training.client.outputs import Ssh

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # mode bits that a private key's file must not have

Key = asyncssh.SSHKey | asyncssh.SSHKeyPair


async def agent() -> asyncssh.SSHAgentClient | None:
    """The user's SSH agent, to be closed after the login; None where none runs."""
    path = os.environ.get("SSH_AUTH_SOCK")
    try:
        return await asyncssh.connect_agent(path) if path else None
    except OSError:  # of an agent that has ended
        return None


async def find(ssh: Ssh, agent: asyncssh.SSHAgentClient | None) -> Sequence[Key]:
    """The key of the file, else of the outputs, else those of the agent.

    Raises:
        ClientError: there is none, or it cannot be used; naming the file.
    """
    path = Path(ssh.key_file).expanduser() if ssh.key_file else None
    if path is not None and (path.exists() or not ssh.private_key):
        text = _read(path)
        try:
            return [asyncssh.import_private_key(text)]
        except asyncssh.KeyImportError as error:
            if "Passphrase" not in str(error):
                raise ClientError(
                    f"key file {path} is no private key that can be read ({error}): "
                    "put the stack's key there"
                ) from None
        held = await agent.get_keys(_public(path)) if agent else []
        if not held:
            raise ClientError(
                f"key file {path} has a passphrase, and no SSH agent (SSH_AUTH_SOCK) holds the "
                f"key: ssh-add {path}"
            )
        return held
    if ssh.private_key:
        try:
            return [asyncssh.import_private_key(ssh.private_key)]
        except asyncssh.KeyImportError as error:
            raise ClientError(f"output 'ssh' has no private key to log in with ({error})") from None
    held = await agent.get_keys() if agent else []
    if not held:
        raise ClientError(
            f"the stack names no key for {ssh.where}, and no SSH agent (SSH_AUTH_SOCK) holds one: "
            'eval "$(ssh-agent)"; ssh-add KEY'
        )
    return held


def fingerprint(key: Key) -> str:
    """As `ssh-keygen -l` shows it."""
    return decode_ssh_public_key(key.public_data).get_fingerprint()


def _read(path: Path) -> str:
    try:
        # What a link names may be changed by others, also after it was looked at.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii")
        with file:
            found = os.fstat(file.fileno()).st_mode
            mode = stat.S_IMODE(found)
            if not stat.S_ISREG(found):
                raise ClientError(f"key file {path} is no file: name the private key's own file")
            if mode & OTHERS:
                raise ClientError(
                    f"key file {path} may be read by others (mode {mode:04o}, at most 0600): "
                    f"chmod 600 {path}"
                )
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        if path.is_symlink():
            reason = "it is a symbolic link"
        raise ClientError(
            f"cannot read the stack's key file {path} ({reason}): copy it from where the stack "
            "was brought up, with mode 0600"
        ) from None


def _public(path: Path) -> list[bytes] | None:
    """The public half of a locked key, to ask the agent for; None where no file tells it."""
    for place in (path, path.with_name(f"{path.name}.pub")):
        with suppress(OSError, asyncssh.KeyImportError):
            return [asyncssh.read_public_key(place).public_data]
    return None
