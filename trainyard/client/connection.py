"""The connection to a stack: its services at addresses that answer on this machine.

A command asks for it once, by `to`, and knows only the outputs that come with it. Where the stack
is on another machine or in a cluster, a subclass brings its services here.
"""

from collections.abc import Callable

from trainyard.client.console import warn
from trainyard.client.outputs import StackOutputs
from trainyard.client.stack_connection import Attached, StackConnection


def to(
    outputs: StackOutputs, report: Callable[[str], None] = warn, *, same_ports: bool = False
) -> StackConnection:
    """Return the connection to a stack, to be opened as a context; see `StackConnection`."""
    if outputs.ssh is not None:
        from trainyard.client.tunnel import Tunnel  # noqa: PLC0415 - slow

        return Tunnel(outputs, report, same_ports=same_ports)
    if outputs.cluster is not None:
        from trainyard.client.kubectl_tunnel import KubectlTunnel  # noqa: PLC0415 - slow

        return KubectlTunnel(outputs, report, same_ports=same_ports)
    if outputs.attached:
        return Attached(outputs, report)
    return StackConnection(outputs, report)
