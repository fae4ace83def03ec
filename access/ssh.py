"""Another machine that is reached by SSH, and what goes wrong on the way to it.

Without asyncssh, which takes a third of a second to import: `ssh_client` connects with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PORT = 22  # SSH's own


class SshError(Exception):
    """A machine cannot be reached or used; the message says what to do.

    Raised itself, and as subclasses other than UnreachableError and LoginRefusedError, for what no
    later attempt mends.
    """


class UnreachableError(SshError):
    """No answer, or the connection broke: a machine that is starting may answer later.

    Attributes:
        reason: why, in a few words.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class LoginRefusedError(SshError):
    """The machine takes none of the keys: one that is starting may not have its users yet."""


class NoKeyError(SshError):
    """There is no key here to log in with, so nothing was asked of the machine."""


class HostKeyError(SshError):
    """Another machine than the one that is meant answers.

    Attributes:
        shown: fingerprint of the host key that it shows, "" if it has none that could be right.
    """

    def __init__(self, message: str, shown: str = "") -> None:
        super().__init__(message)
        self.shown = shown


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How a machine is reached.

    Attributes:
        host: name or address.
        user: who to log in as.
        host_key: its public host key as in known_hosts, without the names: "ssh-ed25519 AAAA…".
        port: of its SSH server.
        private_key: text of the key to log in with; "" leaves it to the SSH agent.
    """

    host: str
    user: str
    host_key: str
    port: int = PORT
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
        """What messages call it: user@host, with the port unless it is SSH's own."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != PORT else "")
