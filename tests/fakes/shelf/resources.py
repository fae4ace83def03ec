"""Resources of the shelf; their types end with the same words as those of every place."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Provider
from infra import backend

from . import account

Props = dict[str, Any]


class StoredProvider(Provider):
    """A resource in the state only."""

    def diff(self, _id: str, olds: Props, news: Props) -> dynamic.DiffResult:
        changed = any(olds.get(key) != value for key, value in news.items() if value is not None)
        return dynamic.DiffResult(changes=changed)

    def create(self, props: Props) -> dynamic.CreateResult:
        return dynamic.CreateResult(secrets.token_hex(4), props)


class AccountProvider(StoredProvider):
    def create(self, props: Props) -> dynamic.CreateResult:
        id_, place = secrets.token_hex(4), backend.find(backend.project_folder())
        return dynamic.CreateResult(id_, {"stackId": id_, "backendId": place.draw_id()})


class ChoiceProvider(StoredProvider):
    def check(self, _olds: Props, news: Props) -> dynamic.CheckResult:
        return dynamic.CheckResult({**news, "hourlyCost": account.PRICE * news["count"]}, [])


class InstanceProvider(StoredProvider):
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
        account.end(id_)


class Account(dynamic.Resource, module="shelf", name="Account"):
    stackId: pulumi.Output[str]  # noqa: N815
    backendId: pulumi.Output[str]  # noqa: N815

    def __init__(self, name: str) -> None:
        super().__init__(AccountProvider(), name, {"stackId": None, "backendId": None})


class Choice(dynamic.Resource, module="shelf", name="Choice"):
    def __init__(self, name: str, props: Props) -> None:
        super().__init__(ChoiceProvider(), name, props)


class FirewallRuleset(dynamic.Resource, module="shelf", name="FirewallRuleset"):
    def __init__(self, name: str, props: Props) -> None:
        super().__init__(StoredProvider(), name, props)


class Instance(dynamic.Resource, module="shelf", name="Instance"):
    launchedAt: pulumi.Output[str]  # noqa: N815

    def __init__(self, name: str, props: Props) -> None:
        made = dict.fromkeys(("hourlyCost", "launchedAt", "healthy"))
        super().__init__(InstanceProvider(), name, {**made, **props})
