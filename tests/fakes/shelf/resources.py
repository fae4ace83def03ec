"""Resources of the shelf; their types end with the same words as those of every place."""
# ruff: noqa: N815

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Args, Given, Provider, Resource, seen
from infra.machines import cloud_provider
from infra.machines.cloud_provider import AccountArgs, Props

from . import account


class ChoiceArgs(Args):
    count: int
    budget: float
    maxHourlyCost: float
    ttlHours: float


class FirewallRulesetArgs(Args):
    rules: Sequence[Mapping[str, Any]]


class InstanceArgs(Args):
    node: int
    tags: Given[Mapping[str, str]]
    ttlHours: float


class AccountProvider(cloud_provider.AccountProvider):
    api_key = "shelfKey"


class ChoiceProvider(Provider[ChoiceArgs]):
    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        cost = account.PRICE * ChoiceArgs.of(news).count
        return dynamic.CheckResult({**news, "hourlyCost": cost}, [])

    def make(self, _args: ChoiceArgs) -> tuple[str, Props]:
        return "choice", {}


class FirewallRulesetProvider(Provider[FirewallRulesetArgs]):
    def make(self, _args: FirewallRulesetArgs) -> tuple[str, Props]:
        return "firewall", {}


class InstanceProvider(Provider[InstanceArgs]):
    def make(self, args: InstanceArgs) -> tuple[str, Props]:
        id_, now = f"machine-{secrets.token_hex(4)}", datetime.now(UTC)
        end = (now + timedelta(hours=args.ttlHours)).isoformat()
        account.put(id_, {"tags": args.tags, "end": end, "healthy": True})
        return id_, {"hourlyCost": account.PRICE, "launchedAt": now.isoformat(), "healthy": True}

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        content = account.machines().get(id_)
        return seen(id_, content and {**props, "healthy": content["healthy"]})

    def delete(self, id_: str, _props: Props) -> None:
        account.ShelfAccount(None).end([id_])


class Account(Resource[AccountArgs], module="shelf", name="Account"):
    _kind = AccountProvider
    stackId: pulumi.Output[str]
    backendId: pulumi.Output[str]


class Choice(Resource[ChoiceArgs], module="shelf", name="Choice"):
    _kind = ChoiceProvider


class FirewallRuleset(Resource[FirewallRulesetArgs], module="shelf", name="FirewallRuleset"):
    _kind = FirewallRulesetProvider


class Instance(Resource[InstanceArgs], module="shelf", name="Instance"):
    _kind = InstanceProvider
    hourlyCost: pulumi.Output[float]
    launchedAt: pulumi.Output[str]
    healthy: pulumi.Output[bool]
