"""The cost of a stack, and the addresses of its services, from its resources and its queue."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from infra.machines import sources
from infra.operate import dashboard
from infra.operate.review.planned import PlannedResource, StackPlan
from trainyard.access import outputs

CHOICE = sources.types("Choice")
INSTANCE = sources.types("Instance")
FIREWALL = sources.types("FirewallRuleset")
CONTAINER = ":Container"
PROGRAM = "process:Program"
LOOPBACK = "127.0.0.1"
AN_HOUR_S = 3600.0
EVERYWHERE = "0.0.0.0"  # noqa: S104 - Docker's default address


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a stack after the plan.

    Attributes:
        before: $/h of the instances that run.
        after: $/h of the planned ones.
        total: $ until their end time, None without one.
        budget: bound of this total in $, 0 for none.
    """

    before: float
    after: float
    total: float | None
    budget: float


def cost(before: Iterable[PlannedResource], after: Iterable[PlannedResource]) -> Cost:
    """Return the cost of a stack; 0 where nothing is rented."""
    now = sum(float(each.props["hourlyCost"]) for each in before if each.type in INSTANCE)
    choices = [each.props for each in after if each.type in CHOICE]
    planned = sum(_number(props, "hourlyCost") for props in choices)
    hours = [_number(props, "ttlHours") for props in choices]
    total = planned * max(hours) if hours and all(hours) else None
    budget = sum(_number(props, "budget") for props in choices)
    return Cost(before=now, after=planned, total=total, budget=budget)


def month(planned: StackPlan) -> float | None:
    """Return what this month has cost so far, in $; None without a queue that tells it."""
    if not planned.outputs.get(outputs.QUEUE):
        return None
    # The shares of jobs, which nobody needs here, are asked for one hour only.
    path = f"/api/queue/cost?since={time.time() - AN_HOUR_S}"
    try:
        way = dashboard.way(planned.outputs, (each.props.get("host") for each in planned.before))
        return _number(dashboard.ask_dashboard(planned.outputs, way, path), "month") or None
    except (dashboard.AskError, AttributeError, LookupError):
        return None


def listening(resources: Iterable[PlannedResource]) -> dict[str, list[str]]:
    """Return the addresses and the users of each service, by resource."""
    found = {each.name: sorted(set(_addresses(each))) for each in resources}
    return {name: addresses for name, addresses in sorted(found.items()) if addresses}


def _addresses(each: PlannedResource) -> Iterator[str]:
    if each.type.endswith(CONTAINER):
        for port in _items(each, "ports"):
            yield f"{port.get('ip') or EVERYWHERE}:{port.get('external', '?')}"
    elif each.type == PROGRAM:
        hosts = {urlsplit(url).hostname for url in _items(each, "health") if isinstance(url, str)}
        for port in _items(each, "ports"):
            for host in sorted(filter(None, hosts)) or [LOOPBACK]:
                yield f"{host}:{port['number']:g}"
    elif each.type in FIREWALL:
        for rule in _items(each, "rules"):
            ports = f"{rule['firstPort']:g} to {rule['lastPort']:g}"
            yield f"ports {ports} from {rule['sourceNetwork']}"


def _items(each: PlannedResource, name: str) -> list[Any]:
    value = each.props.get(name)
    return value if isinstance(value, list) else []  # a preview may not know it


def _number(props: Any, name: str) -> float:
    value = props.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
