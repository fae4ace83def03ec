"""The account of Lambda Cloud: its key and address, its contents with their stacks, and their end.

Key and address are read when needed and not kept in any resource, so the key is in no state.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from infra.machines import identity
from infra.machines.holdings import INSTANCE, Holding
from infra.places.lambda_cloud import API_KEY, machines
from infra.places.lambda_cloud.client import BASE_URL, Client, is_loopback
from infra.places.lambda_cloud.errors import AccessError, LambdaError
from infra.places.lambda_cloud.pacing import PacedClient

KEY_VARIABLES = ("LAMBDA_API_KEY", "LAMBDALABS_API_KEY")  # the second as in Lambda's own examples
URL_VARIABLE = "LAMBDA_API_URL"


def open_account(config_key: str | None, sleep: Callable[[float], None] = time.sleep) -> Client:
    """Return the account of this environment, else of the setting's key; nothing is sent yet.

    `sleep` waits for the pace; what it raises ends the call that waits.

    Raises:
        AccessError: the key is missing, or cannot be a key.
        LambdaError: LAMBDA_API_URL is not an address to send a key to.
    """
    return PacedClient(*credentials(config_key), sleep=sleep)


class LambdaAccount:
    """The account of this environment, without a stack; see holdings.Account."""

    def __init__(self, api_key: str | None) -> None:
        self._api = open_account(api_key)

    def holdings(self) -> list[Holding]:
        found = [
            Holding(
                kind=INSTANCE,
                id=machine.id,
                name=machine.name or "",
                type=machine.instance_type,
                region=machine.region,
                price=machine.price_cents_per_hour / 100,
                **identity.fields(machine.tags),
            )
            for machine in self._api.instances()
            if machine.status != "terminated"
        ]
        for key in self._api.ssh_keys():
            mark = identity.mark_in_key(key.public_key)
            marks: dict[str, Any] = {"mark": mark.stack, "backend": mark.backend}
            found.append(Holding(kind="key", id=key.id, name=key.name, **marks))
        for rules in self._api.firewall_rulesets():
            mark = identity.mark_in_name(rules.name)
            marks = {"mark": mark.stack, "backend": mark.backend, "region": rules.region}
            found.append(Holding(kind="ruleset", id=rules.id, name=rules.name, **marks))
        return found

    def is_gone(self, instance: str) -> bool:
        """Return whether an instance has ended, as the API says."""
        return machines.look_up(self._api, instance) is None

    def end(self, instances: Sequence[str]) -> None:
        machines.terminate(self._api, instances, machines.Clock())


def credentials(config_key: str | None) -> tuple[str, str]:
    """Return the API key and the address of the API; see open_account."""
    for key in (*map(os.environ.get, KEY_VARIABLES), config_key):
        if key := (key or "").strip():  # a key from a file often ends with a line break
            return key, _url()
    raise AccessError(
        f"no API key of Lambda Cloud: set {' or '.join(KEY_VARIABLES)} in the environment, or the "
        f"setting with `train config set --secret {API_KEY}`"
    )


def _url() -> str:
    url = (os.environ.get(URL_VARIABLE) or BASE_URL).rstrip("/")
    if not _may_have_the_key(url):
        value = "(with a user or password in it)" if "@" in url else repr(url)
        raise LambdaError(
            f"{URL_VARIABLE} is {value}: https://host[:port] without user or path is needed, or "
            f"http on loopback. Unset it for {BASE_URL}"
        )
    return url


def _may_have_the_key(url: str) -> bool:
    """Return whether an address is that of an API, and a key for it leaves here only encrypted."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))
    more = "@" in parts.netloc or parts.path or parts.query or parts.fragment
    return named and private and not more
