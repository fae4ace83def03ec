"""The shelf as a place of a stack."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pulumi

from cluster import services
from cluster.descriptor import Stack
from infra.machines import identity, local
from infra.machines.cloud_provider import AccountArgs
from infra.settings.config import Settings
from trainyard.access import outputs

from .resources import (
    Account,
    Choice,
    ChoiceArgs,
    FirewallRuleset,
    FirewallRulesetArgs,
    Instance,
    InstanceArgs,
)
from .settings import Shelf


def is_wanted(settings: Settings, _stack: str) -> bool:
    return isinstance(settings.fleet, Shelf)


def declare(settings: Settings, stack: str) -> Stack:
    shelf: Any = settings.fleet
    own = {"project": pulumi.get_project(), "stack": stack}
    account = Account("shelf-account", AccountArgs(organization=pulumi.get_organization(), **own))
    bounds = {"maxHourlyCost": shelf.max_hourly_cost, "ttlHours": shelf.ttl_hours}
    Choice("shelf-choice", ChoiceArgs(count=shelf.machines, budget=0, **bounds))
    rules = [
        {"sourceNetwork": network, "firstPort": 22, "lastPort": 22}
        for network in settings.allowed_cidrs
    ]
    FirewallRuleset("shelf-firewall", FirewallRulesetArgs(rules=rules))
    owner = local.owner(settings.owner)
    tags = identity.tags(**own, owner=owner, backend=account.backendId)
    tags[identity.ID] = account.stackId
    machines = [
        Instance(
            f"shelf-machine-{index}",
            InstanceArgs(node=index, tags=tags, ttlHours=shelf.ttl_hours),
        )
        for index in range(shelf.machines)
    ]
    runtime: Any = None  # a file runs no service
    return Stack(
        runtime=runtime,
        settings=settings,
        services=[replace(services.RAY, declare=_ray)],
        workers=(),
        expires_at=machines[0].launchedAt.apply(
            lambda at: (datetime.fromisoformat(at) + timedelta(hours=shelf.ttl_hours)).isoformat()
        ),
    )


def _ray(stack: Stack) -> None:
    stack.outputs |= {outputs.NODES: []}
