"""The type of instance and its region: pure decisions over the API's offers.

Prices are dollars an hour. A launch is tried where the API lists capacity, in order, and may still
be refused.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cluster.provider import Args, Given
from infra.places.lambda_cloud.model import Offer

# Firewall rulesets mean nothing there, and Ray's ports would be open to everybody.
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


class Props(BaseModel):
    """Properties of a resource, whose names are camelCase and whole numbers may be floats."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, frozen=True, hide_input_in_errors=True
    )


class Pick(Props):
    """One type in one region.

    Attributes:
        hourly_cost: $/h of one instance.
        memory_mib: of one instance, GPU memory not included.
    """

    instance_type: str
    region: str
    hourly_cost: float
    gpus: int
    gpu_description: str
    vcpus: int
    memory_mib: int

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.region}"


class InstanceRequest(Args):
    """The request of a stack: the arguments of a Choice. Those of settings mean the same here.

    Attributes:
        count: instances, at most.
        least: instances, at least; 0 where there are never fewer.
    """

    stackId: Given[str] = ""
    candidates: Sequence[Mapping[str, str]] = ()
    gpus: int = 0
    gpuMemoryGib: int = 0
    count: int = 1
    least: int = 0
    maxHourlyCost: float = 0.0
    budget: float = 0.0
    ttlHours: float = 0.0

    def names(self, pick: Pick) -> bool:
        """Return whether this type and region was asked for, whatever the price."""
        if pick.region in UNFILTERED_REGIONS:
            return False
        if not self.candidates:
            return self._is_enough(pick.instance_type, pick.gpus, pick.gpu_description)
        return any(
            each["type"] == pick.instance_type and each.get("region", "") in ("", pick.region)
            for each in self.candidates
        )

    def excess(self, price: float) -> ChoiceError | None:
        """Return how so many instances at this price exceed a bound, None when they do not."""
        hourly = price * self.count
        total = hourly * self.ttlHours
        counted = f"all {self.count} possible instances: " if self._grows else ""
        for setting, amount, unit, bound in (
            ("maxHourlyCost", hourly, "$/h", self.maxHourlyCost),
            ("budget", total, f"$ for {self.ttlHours:g} h", self.budget),
        ):
            if bound and _is_above(amount, bound):
                text = f"{counted}{amount:.2f} {unit} is above {setting} {bound:g}"
                return ChoiceError(setting, text)
        return None

    def describe(self, pick: Pick) -> str:
        """Return one line on a choice and its cost."""
        counts = [self.least, self.count] if self._grows else [self.count]
        hourly = [pick.hourly_cost * count for count in counts]
        text = f"{' to '.join(map(str, counts))} x {pick}: "
        text += f"{' to '.join(f'{cost:.2f}' for cost in hourly)} $/h"
        if self.ttlHours:
            most, total = "at most " if self._grows else "", hourly[-1] * self.ttlHours
            text += f", {most}{total:.2f} $ for the stack's {self.ttlHours:g} h"
        if self.budget:
            text += f" (budget {self.budget:g} $)"
        return text

    @property
    def _grows(self) -> bool:
        """Whether there may be more instances than at first."""
        return 0 < self.least < self.count

    def _is_enough(self, type_: str, gpus: int, gpu_description: str) -> bool:
        if ARM.search(type_) or gpus < self.gpus:
            return False
        memory = re.search(r"(\d+)\s*GB", gpu_description)
        least = self.gpuMemoryGib
        return not least or (memory is not None and int(memory.group(1)) >= least)

    def wanted(self, offers: Mapping[str, Offer]) -> list[tuple[Offer, str]]:
        """Return types and regions in the order to try them."""
        if self.candidates:
            return [(offers[each["type"]], each.get("region", "")) for each in self.candidates]
        fitting = (
            offer
            for offer in offers.values()
            if self._is_enough(offer.name, offer.gpus, offer.gpu_description)
        )
        by_price = sorted(fitting, key=lambda offer: (offer.price, offer.name))
        return [(offer, "") for offer in by_price]


def choose(request: InstanceRequest, offers: Mapping[str, Offer]) -> tuple[list[Pick], list[str]]:
    """Choose where launches are tried.

    Returns:
        The picks that have capacity within the bounds, in order, at least one; and a line for each
        candidate before the first that was refused.

    Raises:
        ChoiceError: a type is unknown, or no candidate is left.
    """
    for type_ in (each["type"] for each in request.candidates):
        if type_ not in offers:
            near = difflib.get_close_matches(type_, offers, n=3, cutoff=0.4) or sorted(offers)
            raise ChoiceError(
                "candidates", f"instance type {type_!r} is unknown; nearest: {', '.join(near)}"
            )
    picks: list[Pick] = []
    refused: list[str] = []
    wanted = request.wanted(offers)
    for offer, region in wanted:
        found, reason = _try(request, offer, region)
        picks += [pick for pick in found if pick not in picks]
        if not picks:
            refused.append(f"{offer.name} in {region or 'any region'}: {reason}")
    if picks:
        return picks, refused
    raise _nothing_left(request, offers, wanted, refused)


def _is_above(amount: float, bound: float) -> bool:
    """Return whether it is above by a cent or more: three times 1.10 is above 3.30 by less."""
    return round(amount * 100) > round(bound * 100)


def _try(request: InstanceRequest, offer: Offer, region: str) -> tuple[list[Pick], str]:
    """Return the picks of one candidate, or the reason why there are none."""
    if excess := request.excess(offer.price):
        return [], str(excess)
    regions = [each for each in offer.regions if region in ("", each)]
    if not regions:
        return [], "no capacity"
    picks = [
        Pick(
            instance_type=offer.name,
            region=each,
            hourly_cost=offer.price,
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
        largest = max(offers.values(), key=lambda offer: (offer.gpus, offer.price))
        return ChoiceError(
            "gpus",
            f"no type has {request.gpus} GPUs of {request.gpuMemoryGib} GB; the "
            f"largest is {largest.name} ({largest.gpus} x {largest.gpu_description}): ask for less",
        )
    reasons = "; ".join(refused)
    above = [excess for offer, _ in wanted if (excess := request.excess(offer.price))]
    if len(above) == len(wanted):
        return ChoiceError(
            above[0].setting,
            f"no candidate is cheap enough ({reasons}); raise it, or ask for less",
        )
    return ChoiceError("candidates", f"none is available now ({reasons}). {available(offers)}")


def available(offers: Mapping[str, Offer]) -> str:
    """Return the types with capacity now, the cheapest first, and the next action."""
    having = sorted(
        (offer for offer in offers.values() if offer.regions),
        key=lambda offer: (offer.price, offer.name),
    )
    if not having:
        return "No type has capacity in any region: run up again later"
    lines = [
        f"{offer.name} in {', '.join(offer.regions)} ({offer.price:.2f} $/h)"
        for offer in having[:SHOWN]
    ]
    more = f", and {len(having) - SHOWN} more expensive types" if len(having) > SHOWN else ""
    return (
        f"Capacity now: {'; '.join(lines)}{more}. Add one of them to the candidates, or run up "
        "again later"
    )
