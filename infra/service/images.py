"""Addresses and paths of services that run from images, as containers or as pods."""

from cluster.service import Volume

LOOPBACK = "127.0.0.1"
FILES = "/etc/trainyard"
VOLUMES = "/var/lib/trainyard"  # our images make it, owned by the user that they run as


class FromImages:
    """The part of a runtime whose services each have a network and a file system."""

    def listen_address(self, service: str) -> str:  # noqa: ARG002
        """Return the address that a service listens on for its clients."""
        return "0.0.0.0"  # noqa: S104 (of the container or pod, on a network that is guarded)

    def node_address(self, index: int) -> str:  # noqa: ARG002
        """Return "": Ray finds out its node's address."""
        return ""

    def file(self, service: str, name: str) -> str:  # noqa: ARG002
        return f"{FILES}/{name}"


def path(volume: Volume) -> str:
    """Return the path at which a service finds a volume of its own, or of its image."""
    if volume.keep or volume.shared or volume.source:
        return volume.mount or f"{VOLUMES}/{volume.name}"
    return f"/tmp/{volume.name}"  # noqa: S108 (goes with the container or pod)
