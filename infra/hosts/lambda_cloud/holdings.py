"""The contents of the account, their stacks as far as they are marked, and their end."""

from collections.abc import Sequence
from typing import Any

from infra.hosts import identity
from infra.hosts.holdings import INSTANCE, Holding
from infra.hosts.lambda_cloud import machines
from infra.hosts.lambda_cloud.account import open_account


class LambdaAccount:
    """The account of this environment, without a stack; see holdings.Account."""

    def __init__(self, api_key: str | None) -> None:
        """Open the account.

        Args:
            api_key: value of the setting, used if the environment has none.

        Raises:
            LambdaError: neither names an account.
        """
        self._api = open_account(api_key)

    def holdings(self) -> list[Holding]:
        """Return its instances, keys and rulesets."""
        found = [
            Holding(
                kind=INSTANCE,
                id=machine.id,
                name=machine.name or "",
                type=machine.instance_type,
                region=machine.region,
                price=machine.price_cents_per_hour / 100,
                **identity.told(machine.tags),
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
        """End instances, and wait until they have ended."""
        machines.terminate(self._api, instances, machines.Clock())
