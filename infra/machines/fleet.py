"""The machines of a stack, whatever their source, and what it asks of them.

Deliberately absent: this machine. It needs no login and nothing is installed on it (`this_machine`
in machine.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster import idle_end
from cluster.inputs import join
from cluster.ray_node import NodeResources
from cluster.secret import TOKEN_BYTES, Secret
from infra.machines.machine import Machine
from infra.settings.config import Settings


@dataclass(frozen=True, kw_only=True)
class IdleWatch:
    """The service on the head's machine that knows whether the cluster is idle."""

    port: int
    token: pulumi.Input[str]

    @classmethod
    def of(cls, settings: Settings) -> IdleWatch | None:
        """Return that of a stack; None if it does not end when it is idle."""
        if not settings.of_services[idle_end.SETTING]:
            return None
        token = Secret("idle-end-token", TOKEN_BYTES).value
        return cls(port=settings.ports[idle_end.PORT], token=token)

    def asked_at(self, address: pulumi.Input[str], *, last: bool = False) -> dict[str, Any]:
        """Return what a timer needs to ask it at host:port, as ending.Way takes it."""
        return {"url": join("http://", address, "/verdict"), "token": self.token, "last": last}


@dataclass(frozen=True, kw_only=True)
class FleetArgs:
    """A stack's requirements for its machines, whatever their source.

    Attributes:
        settings: all settings of the stack. Without startRay, Ray's launcher copies the private
            key to the head, where jobs can read it. Then no machine holds a secret of the account.
        requested: numbers of the machines of groups that grow that have to exist now.
        idle: service that machines which end themselves ask too; None where only the deadline
            counts.
    """

    settings: Settings
    requested: Sequence[int] = ()
    idle: IdleWatch | None = None

    @property
    def base(self) -> str:
        """Folder of the stack's files on each, below the home folder."""
        return f".trainyard/{pulumi.get_project()}-{pulumi.get_stack()}"

    @property
    def containers(self) -> bool:
        """Whether services are containers, which bring their Python."""
        return self.settings.runtime == "docker"


@dataclass(frozen=True, kw_only=True)
class Login:
    """How users log in.

    Attributes:
        key_file: private key on this machine, "" for the SSH agent.
        hands_out_key: whether the outputs hold the key, because their readers may lack the file.
    """

    key_file: str
    hands_out_key: bool

    def output(self, machine: Machine) -> dict[str, pulumi.Input[Any]]:
        """Return the output `ssh` for a machine."""
        fields = ("host", "port", "user", "hostKey")
        file = "" if self.hands_out_key else self.key_file
        return {key: machine.connection[key] for key in fields} | {
            "keyFile": file,
            "privateKey": "" if file else machine.connection["privateKey"],
        }


@dataclass(frozen=True, kw_only=True)
class ElasticGroup:
    """Machines of a group that grows, whether they exist now or not; all are alike.

    Attributes:
        numbers: of the machines in the stack.
        least: how many are always requested.
        resources: offered by the worker of each.
    """

    numbers: range
    least: int
    resources: pulumi.Input[NodeResources]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The machines of a stack.

    Attributes:
        machines: the machines, the head's first; of an elastic group, the requested ones.
        elastic_group: the group that grows; None where all machines exist always.
        expires_at: when they end themselves, in ISO 8601; "" for never.
    """

    machines: Sequence[Machine]
    login: Login
    elastic_group: ElasticGroup | None = None
    expires_at: pulumi.Input[str] = ""
