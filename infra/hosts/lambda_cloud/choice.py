"""The type of instance and its region: pure decisions over the API's offers.

Prices are dollars an hour. A launch is tried where the API lists capacity, in order, and may still
be refused.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.hosts.lambda_cloud.model import Offer

# Firewall rulesets mean nothing there: every port of an instance is open to everybody.
UNFILTERED_REGIONS = ("us-south-1",)
ARM = re.compile(r"g[hb]\d00")  # Grace: the images of this project are not built for it
SHOWN = 12  # types with capacity that an error lists


class ChoiceError(Exception):
    """No machine fits; one message with the value, the bound and the next action.

    Attributes:
        setting: property at fault.
    """

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One type in one region.

    Attributes:
        price: $/h of one instance.
        memory_mib: of one instance, GPU memory not included.
    """

    instance_type: str
    region: str
    price: float
    gpus: int
    gpu_description: str
    vcpus: int
    memory_mib: int

    def to_props(self) -> dict[str, Any]:
        """Return it as a property value."""
        return {
            "instanceType": self.instance_type,
            "region": self.region,
            "hourlyCost": self.price,
            "gpus": self.gpus,
            "gpuDescription": self.gpu_description,
            "vcpus": self.vcpus,
            "memoryMib": self.memory_mib,
        }

    @classmethod
    def of_props(cls, props: Mapping[str, Any]) -> "Pick":
        """Return it from a property value, where whole numbers may have become floats."""
        return cls(
            instance_type=props["instanceType"],
            region=props["region"],
            price=float(props["hourlyCost"]),
            gpus=int(props["gpus"]),
            gpu_description=props["gpuDescription"],
            vcpus=int(props["vcpus"]),
            memory_mib=int(props["memoryMib"]),
        )

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.region}"


@dataclass(frozen=True, kw_only=True)
class InstanceRequest:
    """The request of a stack.

    Attributes:
        candidates: (type, region) in order of preference; region "" for any.
        gpus: at least so many in an instance; used without candidates.
        gpu_memory_gib: at least so much on each GPU; used without candidates.
        count: instances, at most.
        least: instances, at least; 0 where there are never fewer.
        max_hourly_cost: bound of $/h for all instances, 0 for none.
        budget: bound of $ for all instances over the stack's time to live, 0 for none.
        ttl_hours: the stack's time to live, 0 for none.
        need_firewall: leave out regions that apply no firewall rules.
    """

    candidates: tuple[tuple[str, str], ...] = ()
    gpus: int = 0
    gpu_memory_gib: int = 0
    count: int = 1
    least: int = 0
    max_hourly_cost: float = 0.0
    budget: float = 0.0
    ttl_hours: float = 0.0
    need_firewall: bool = False

    @classmethod
    def of_props(cls, props: Mapping[str, Any]) -> "InstanceRequest":
        """Return the request in the properties of a Choice.

        Raises:
            ChoiceError: they contradict one another.
        """
        need = props.get("need") or {}
        request = cls(
            candidates=tuple((c["type"], c.get("region") or "") for c in props["candidates"] or ()),
            gpus=int(need.get("gpus", 0)),
            gpu_memory_gib=int(need.get("gpuMemoryGib", 0)),
            count=int(props["count"]),
            least=int(props.get("least") or 0),
            max_hourly_cost=float(props["maxHourlyCost"] or 0),
            budget=float(props["budget"] or 0),
            ttl_hours=float(props["ttlHours"] or 0),
            need_firewall=bool(props["needFirewall"]),
        )
        if request.count < 1:
            raise ChoiceError("count", f"is {request.count}; at least 1 instance is needed")
        if bool(request.candidates) == bool(need):
            raise ChoiceError(
                "candidates", "name either types of instance or what is needed of the GPUs"
            )
        if request.budget and not request.ttl_hours:
            raise ChoiceError(
                "budget",
                f"{request.budget:g} $ bounds nothing without a time to live; set ttlHours too",
            )
        return request

    def names(self, pick: Pick) -> bool:
        """Return whether this type and region was asked for, whatever the price."""
        if self.need_firewall and pick.region in UNFILTERED_REGIONS:
            return False
        if not self.candidates:
            return self._is_enough(pick.instance_type, pick.gpus, pick.gpu_description)
        return any(
            type_ == pick.instance_type and region in ("", pick.region)
            for type_, region in self.candidates
        )

    def over_budget(self, price: float) -> str:
        """Return why so many instances at this price exceed a bound, "" when they do not."""
        hourly = price * self.count
        if self.max_hourly_cost and _is_above(hourly, self.max_hourly_cost):
            return f"{self._of_all}{hourly:.2f} $/h is above maxHourlyCost {self.max_hourly_cost:g}"
        total = hourly * self.ttl_hours
        if self.budget and _is_above(total, self.budget):
            return (
                f"{self._of_all}{total:.2f} $ for {self.ttl_hours:g} h is above budget "
                f"{self.budget:g}"
            )
        return ""

    def describe(self, pick: Pick) -> str:
        """Return one line on a choice and its cost."""
        hourly, grows = pick.price * self.count, 0 < self.least < self.count
        text = f"{self.count} x {pick}: {hourly:.2f} $/h"
        if grows:
            text = (
                f"{self.least} to {self.count} x {pick}: {pick.price * self.least:.2f} to "
                f"{hourly:.2f} $/h"
            )
        if self.ttl_hours:
            most = "at most " if grows else ""
            text += f", {most}{hourly * self.ttl_hours:.2f} $ for the stack's {self.ttl_hours:g} h"
        if self.budget:
            text += f" (budget {self.budget:g} $)"
        return text

    @property
    def _of_all(self) -> str:
        """Prefix for a bound that counts more instances than there are at first."""
        return f"all {self.count} possible instances: " if 0 < self.least < self.count else ""

    def _is_enough(self, type_: str, gpus: int, gpu_description: str) -> bool:
        if ARM.search(type_) or gpus < self.gpus:
            return False
        memory = re.search(r"(\d+)\s*GB", gpu_description)
        return not self.gpu_memory_gib or (
            memory is not None and int(memory.group(1)) >= self.gpu_memory_gib
        )

    def wanted(self, offers: Mapping[str, Offer]) -> list[tuple[Offer, str]]:
        """Return types and regions in the order to try them."""
        if self.candidates:
            return [(offers[type_], region) for type_, region in self.candidates]
        fitting = (
            offer
            for offer in offers.values()
            if self._is_enough(offer.name, offer.gpus, offer.gpu_description)
        )
        by_price = sorted(fitting, key=lambda offer: (offer.price_cents_per_hour, offer.name))
        return [(offer, "") for offer in by_price]


def choose(request: InstanceRequest, offers: Mapping[str, Offer]) -> tuple[list[Pick], list[str]]:
    """Choose where launches are tried.

    Args:
        request: the stack's request.
        offers: types of instance by name, as the API has them.

    Returns:
        The picks that have capacity within the bounds, in order, at least one; and a line for each
        candidate before the first that was refused.

    Raises:
        ChoiceError: a type is unknown, or no candidate is left.
    """
    for type_, _ in request.candidates:
        if type_ not in offers:
            near = difflib.get_close_matches(type_, offers, n=3, cutoff=0.4) or sorted(offers)
            raise ChoiceError(
                "candidates", f"instance type {type_!r} is unknown; nearest: {', '.join(near)}"
            )
    picks: list[Pick] = []
    refused: list[str] = []
    refused_first: list[str] = []
    wanted = request.wanted(offers)
    for offer, region in wanted:
        found, reason = _try(request, offer, region)
        new = [pick for pick in found if pick not in picks]
        if new and not picks:
            refused_first = list(refused)
        picks += new
        if reason:
            refused.append(f"{offer.name} in {region or 'any region'}: {reason}")
    if picks:
        return picks, refused_first
    raise _nothing_left(request, offers, wanted, refused)


def _is_above(amount: float, bound: float) -> bool:
    """Return whether it is above by a cent or more: three times 1.10 is above 3.30 by less."""
    return round(amount * 100) > round(bound * 100)


def _try(request: InstanceRequest, offer: Offer, region: str) -> tuple[list[Pick], str]:
    """Return the picks of one candidate, or the reason why there are none."""
    price = offer.price_cents_per_hour / 100
    if reason := request.over_budget(price):
        return [], reason
    regions = [each for each in offer.regions if region in ("", each)]
    if not regions:
        return [], "no capacity"
    picks = [
        Pick(
            instance_type=offer.name,
            region=each,
            price=price,
            gpus=offer.gpus,
            gpu_description=offer.gpu_description,
            vcpus=offer.vcpus,
            memory_mib=offer.memory_gib * 1024,
        )
        for each in regions
    ]
    allowed = [pick for pick in picks if request.names(pick)]
    return allowed, "" if allowed else "no firewall rules apply there"


def _nothing_left(
    request: InstanceRequest,
    offers: Mapping[str, Offer],
    wanted: Sequence[tuple[Offer, str]],
    refused: Iterable[str],
) -> ChoiceError:
    if not wanted:
        largest = max(offers.values(), key=lambda offer: (offer.gpus, offer.price_cents_per_hour))
        return ChoiceError(
            "need",
            f"no type has {request.gpus} GPUs of {request.gpu_memory_gib} GB; the largest is "
            f"{largest.name} ({largest.gpus} x {largest.gpu_description}): ask for less",
        )
    reasons = "; ".join(refused)
    prices = [offer.price_cents_per_hour / 100 for offer, _ in wanted]
    if above := [reason for reason in map(request.over_budget, prices) if reason]:
        setting = "budget" if "budget" in above[0] else "maxHourlyCost"
        if len(above) == len(prices):
            return ChoiceError(
                setting, f"no candidate is cheap enough ({reasons}); raise it, or ask for less"
            )
    return ChoiceError("candidates", f"none is available now ({reasons}). {available(offers)}")


def available(offers: Mapping[str, Offer]) -> str:
    """Return the types with capacity now, the cheapest first, and the next action."""
    having = sorted(
        (offer for offer in offers.values() if offer.regions),
        key=lambda offer: (offer.price_cents_per_hour, offer.name),
    )
    if not having:
        return "No type has capacity in any region: run up again later"
    lines = [
        f"{offer.name} in {', '.join(offer.regions)} ({offer.price_cents_per_hour / 100:.2f} $/h)"
        for offer in having[:SHOWN]
    ]
    more = f", and {len(having) - SHOWN} more expensive types" if len(having) > SHOWN else ""
    return (
        f"Capacity now: {'; '.join(lines)}{more}. Add one of them to the candidates, or run up "
        "again later"
    )
