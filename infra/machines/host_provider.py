"""Tells whether a machine that does not answer is off or gone for good; ends machines."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi import dynamic

from cluster.provider import A, Args, Given, Provider, seen
from infra.machines.holdings import Account
from trainyard.access.ssh import SshError


def is_gone(host: Mapping[str, Any], config: dynamic.Config) -> bool:
    """Return whether a rented machine is gone, according to the cloud that rented it.

    A machine without a cloud's id is not rented.

    Raises:
        RunError: the cloud does not answer.
    """
    return any(account.is_gone(instance) for account, instance in _rented(host, config))


def end(host: Mapping[str, Any], config: dynamic.Config) -> bool:
    """End a machine if it is rented, and wait until it has ended; return whether it is.

    Raises:
        RunError: the cloud does not end it.
    """
    for account, instance in _rented(host, config):
        account.end([instance])
        return True
    return False


def _rented(host: Mapping[str, Any], config: dynamic.Config) -> Iterator[tuple[Account, str]]:
    """Yield the account that a machine is rented from, and its id there; nothing for others."""
    # Not at the top: a provider of this machine would pay a third of a second for models.
    from infra.machines import sources  # noqa: PLC0415

    for cloud in sources.CLOUDS:
        if instance := host.get(cloud.instance):
            yield cloud.account(config.get(cloud.api_key)), instance


class HostArgs(Args):
    """Arguments of a resource on another machine.

    Attributes:
        host: argument of `trainyard.access.ssh.Connection.of`.
        machine: identity of the machine, at whatever address.
    """

    host: Given[Mapping[str, Any]]
    machine: Given[str]


class HostProvider(Provider[A]):
    """A resource on a machine: when a rented machine is gone, so is everything on it."""

    _config = dynamic.Config({}, "")

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        """Take API keys from the stack's config, where the environment may have none."""
        super().configure(req)
        self._config = req.config

    @contextlib.contextmanager
    def unless_gone(self, host: Mapping[str, Any]) -> Iterator[None]:
        """Skip work that fails because the machine is gone; one that is off is an error.

        Raises:
            SshError: the machine cannot be reached, and is not known to be gone.
        """
        try:
            yield
        except SshError:
            if not is_gone(host, self._config):
                raise

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        with self.unless_gone(props["host"]):
            return super().read(id_, props)
        return seen(id_, None)
