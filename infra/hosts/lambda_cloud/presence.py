"""Tells whether a machine of the account is gone; ends machines."""

from infra.hosts.lambda_cloud.account import open_account
from infra.hosts.lambda_cloud.errors import NotFoundError
from infra.hosts.lambda_cloud.machines import ENDED, Clock, terminate


def is_gone(instance: str, api_key: str | None) -> bool:
    """Return whether an instance has ended, as the API says.

    Args:
        instance: its id.
        api_key: value of the setting, used if the environment has none.

    Raises:
        LambdaError: the API does not answer.
    """
    try:
        return open_account(api_key).instance(instance).status in ENDED
    except NotFoundError:
        return True


def end(instance: str, api_key: str | None) -> None:
    """End an instance, and wait until it has ended; see `is_gone`."""
    terminate(open_account(api_key), [instance], Clock())
