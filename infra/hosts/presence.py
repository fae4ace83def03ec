"""Whether a machine that does not answer is switched off or gone for good."""

from typing import Any

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
