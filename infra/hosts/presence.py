"""Whether a machine that does not answer is switched off or gone for good."""

import contextlib
from collections.abc import Iterator
from typing import Any

from pulumi import dynamic

from cluster.provider import Provider
from cluster.ssh import SshError

API_KEY = "lambdaApiKey"  # the setting


def is_gone(host: dict[str, Any], api_key: str | None) -> bool:
    """Return whether a rented machine is there no more, as the cloud that rented it says.

    Args:
        host: property `host` of a resource; a machine without an instanceId is nobody's to end.
        api_key: value of the setting, used if the environment has none.

    Raises:
        LambdaError: the cloud does not answer.
    """
    if not host.get("instanceId"):
        return False
    # Imported where it is asked: a stack of this machine has no use for an HTTP client.
    from infra.hosts.lambda_cloud.account import open_account  # noqa: PLC0415
    from infra.hosts.lambda_cloud.errors import NotFoundError  # noqa: PLC0415
    from infra.hosts.lambda_cloud.machines import ENDED  # noqa: PLC0415

    try:
        return open_account(api_key).instance(host["instanceId"]).status in ENDED
    except NotFoundError:
        return True


class HostProvider(Provider):
    """A resource on a machine: with a rented machine that is gone, all on it is gone."""

    _key: str | None = None

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        """Take the API key from the stack's config, where the environment may have none."""
        super().configure(req)
        self._key = req.config.get(API_KEY)

    @contextlib.contextmanager
    def unless_gone(self, props: dict[str, Any]) -> Iterator[None]:
        """Leave out what cannot be done because the machine is gone; one that is off is an error.

        Raises:
            SshError: the machine cannot be reached, and is not known to be gone.
        """
        try:
            yield
        except SshError:
            if not is_gone(props["host"], self._key):
                raise
