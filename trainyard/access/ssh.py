"""Another machine that is reached by SSH, and the errors on the way to it.

It imports no asyncssh, which takes a third of a second: `ssh_client` connects with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PORT = 22  # SSH's own


class SshError(Exception):
    """A machine cannot be reached or used; the message says what to do.

    Raised itself, and as subclasses other than UnreachableError and LoginRefusedError, for errors
    that no later attempt fixes.
    """


class UnreachableError(SshError):
    """No answer, or the connection broke: a machine that is starting may answer later."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason  # why, in a few words


class LoginRefusedError(SshError):
    """The machine takes none of the keys: one that is starting may not have its users yet."""


class NoKeyError(SshError):
    """No key to log in with was found here, so the machine was not contacted."""


class HostKeyError(SshError):
    """Another machine than the intended one answers."""

    def __init__(self, message: str, shown: str = "") -> None:
        super().__init__(message)
        self.shown = shown  # fingerprint of its host key, "" if it has none that could be right


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach a machine."""

    host: str  # name or address
    user: str  # name to log in as
    host_key: str  # its public host key as in known_hosts, without the names: "ssh-ed25519 AAAA…"
    port: int = PORT  # of its SSH server
    # text of the key to log in with; "" leaves it to the SSH agent
    private_key: str = field(default="", repr=False)

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> Connection:
        """Return the connection that the properties of a resource hold."""
        return cls(
            host=props["host"],
            user=props["user"],
            host_key=props["hostKey"],
            port=int(props["port"]),
            private_key=props.get("privateKey") or "",
        )

    @property
    def name(self) -> str:
        """Its name in messages: user@host, with the port unless it is SSH's own."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != PORT else "")
