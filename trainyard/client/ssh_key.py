"""The key that logs in at a stack's host: a file, the stack's outputs, or the user's SSH agent."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import asyncssh
from asyncssh.public_key import decode_ssh_public_key

from trainyard.access import key_file, ssh_client
from trainyard.access.ssh import NoKeyError
from trainyard.access.ssh_client import Key
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Ssh


async def find(ssh: Ssh, agent: asyncssh.SSHAgentClient | None) -> Sequence[Key]:
    """The key of the file, else of the outputs, else those of the agent.

    Raises:
        ClientError: no key, or it cannot be used; naming the file.
    """
    path = Path(ssh.key_file).expanduser() if ssh.key_file else None
    if path is not None and (path.exists() or not ssh.private_key):
        try:
            text = key_file.read(
                path, "copy it from where the stack was brought up, with mode 0600"
            )
            key = ssh_client.parse_key(text, path, "put the stack's key there")
        except NoKeyError as error:
            raise ClientError(str(error)) from None
        if key is not None:
            return [key]
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
            f"the stack names no key for {ssh.name}, and no SSH agent (SSH_AUTH_SOCK) holds one: "
            'eval "$(ssh-agent)"; ssh-add KEY'
        )
    return held


def fingerprint(key: Key) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` shows it."""
    return decode_ssh_public_key(key.public_data).get_fingerprint()


def _public(path: Path) -> list[bytes] | None:
    """The public half of a locked key, to ask the agent for; None if no file has it."""
    for place in (path, path.with_name(f"{path.name}.pub")):
        with suppress(OSError, asyncssh.KeyImportError):
            return [asyncssh.read_public_key(place).public_data]
    return None
