"""A machine behind an instance of the fake cloud, for more than an entry in a list."""

from typing import Protocol


class Machines(Protocol):
    """Makes and ends machines. Called from threads of the fake, for several machines at once."""

    def boot(
        self, instance_id: str, name: str, hostname: str, user_data: str, ssh_public_key: str
    ) -> tuple[str, str]:
        """Make a machine and wait until it has started.

        An exception makes the instance unhealthy.

        Returns:
            Its public and its private IPv4 address; the instance is active from now on.
        """

    def destroy(self, instance_id: str) -> None:
        """End a machine and wait until it is gone; a missing one is not an error."""
