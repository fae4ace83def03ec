"""The way to a stack that is not on this machine: through SSH, or by kubectl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from trainyard.client.outputs import StackOutputs


@dataclass(frozen=True, kw_only=True)
class Route:
    """One service: its address here, and at the stack."""

    service: str
    here: str
    there: str


class Way(Protocol):
    """The services of a stack on this machine, while the context lasts.

    Attributes:
        outputs: of the stack, with the addresses that answer here.
        routes: the forwarded services.
    """

    outputs: StackOutputs
    routes: list[Route]

    def __enter__(self) -> Self:
        """Opens it."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def wait(self) -> None:
        """Returns when it has given up and reported it."""
        ...


def tunnel(
    outputs: StackOutputs, report: Callable[[str], None], *, same_ports: bool = False
) -> Way | None:
    """Return the way to a stack's services; None if they are on this machine.

    Args:
        outputs: with addresses as they are there; empty ones are left out.
        report: takes a sentence when the way is lost, or back.
        same_ports: forward from the port numbers that they have there, where these are free here.
    """
    if outputs.ssh is not None:
        from trainyard.client.tunnel import Tunnel  # noqa: PLC0415 - slow

        return Tunnel(outputs.ssh, outputs, report, same_ports=same_ports)
    if outputs.cluster is not None:
        from trainyard.client.kubectl_tunnel import KubectlTunnel  # noqa: PLC0415 - slow

        return KubectlTunnel(outputs.cluster, outputs, report, same_ports=same_ports)
    return None
