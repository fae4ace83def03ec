"""Resources of the shelf; their types end with the same words as those of every place."""

import secrets
from datetime import UTC, datetime, timedelta

import pulumi
from pulumi import dynamic

from cluster.provider import Provider, Resource
from infra.machines import cloud_provider
from infra.machines.cloud_provider import Props

from . import account


class AccountProvider(cloud_provider.AccountProvider):
    api_key = "shelfKey"


class ChoiceProvider(Provider):
    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        return dynamic.CheckResult({**news, "hourlyCost": account.PRICE * news["count"]}, [])

    def create(self, props: Props) -> dynamic.CreateResult:
        return dynamic.CreateResult("choice", props)


class FirewallRulesetProvider(Provider):
    def create(self, props: Props) -> dynamic.CreateResult:
        return dynamic.CreateResult("firewall", props)


class InstanceProvider(Provider):
    def create(self, props: Props) -> dynamic.CreateResult:
        id_, now = f"machine-{secrets.token_hex(4)}", datetime.now(UTC)
        end = (now + timedelta(hours=props["ttlHours"])).isoformat()
        account.put(id_, {"tags": props["tags"], "end": end, "healthy": True})
        made = {"hourlyCost": account.PRICE, "launchedAt": now.isoformat(), "healthy": True}
        return dynamic.CreateResult(id_, {**props, **made})

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        if (content := account.machines().get(id_)) is None:
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, {**props, "healthy": content["healthy"]})

    def delete(self, id_: str, _props: Props) -> None:
        account.ShelfAccount(None).end([id_])


class Account(Resource, module="shelf", name="Account"):
    _kind = AccountProvider
    stackId: pulumi.Output[str]  # noqa: N815
    backendId: pulumi.Output[str]  # noqa: N815


class Choice(Resource, module="shelf", name="Choice"):
    _kind = ChoiceProvider


class FirewallRuleset(Resource, module="shelf", name="FirewallRuleset"):
    _kind = FirewallRulesetProvider


class Instance(Resource, module="shelf", name="Instance"):
    _kind = InstanceProvider
    hourlyCost: pulumi.Output[float]  # noqa: N815
    launchedAt: pulumi.Output[str]  # noqa: N815
    healthy: pulumi.Output[bool]
