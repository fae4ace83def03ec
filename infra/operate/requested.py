"""The machines of an elastic group that `up` keeps: Ray's request, or the existing ones.

Ray's autoscaler on the head writes down its request (node/node_provider.py).
`train scale` runs `up` with it in a variable. An `up` without the variable, a user's own,
keeps the existing machines: it launches no machine of such a group beyond its least, and ends none.
So does one with AS_IT_IS in the variable; but only a user's own recreates a head.
"""

import os
from collections.abc import Iterable, Mapping

import pulumi

from cluster import ray_node
from cluster.ray_node import Growth
from infra.operate import backend, states

VARIABLE = "TRAINYARD_REQUESTED"  # names of the requested workers, with commas between them
AS_IT_IS = "*"  # in its place: the existing machines
HEAD = 0  # number of the machine that the head is on


def machines(numbers: range, growth: Growth) -> list[int]:
    """Return the numbers of a group's requested machines.

    Raises:
        pulumi.RunError: the state cannot be read; or it has no such stack, and a request is to
            be met.
    """
    existing = _existing()
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return enough(numbers, growth.least, existing)
    # Those before the group's exist always, the head's first.
    lost = ", ".join(str(number) for number in range(numbers.start) if not existing.get(number))
    if lost:
        stack = pulumi.get_stack()
        what = f"has lost machine {lost}" if HEAD in existing else "is not up"
        raise pulumi.RunError(
            f"{VARIABLE} is set, which only `train scale` does, and stack {stack} "
            f"{what}: it has no whole cluster that could grow. You decide on new machines: look, "
            f"then run `make up STACK={stack}`"
        )
    if asked == AS_IT_IS:
        return enough(numbers, growth.least, existing)
    names = asked.split(",")
    return enough(numbers, growth.least, [n for n in numbers if ray_node.worker_name(n) in names])


def enough(numbers: range, least: int, requested: Iterable[int]) -> list[int]:
    """Return the requested numbers that may exist, and others up to the least."""
    found = sorted({*numbers} & {*requested})
    others = [number for number in numbers if number not in found]
    return sorted([*found, *others[: max(0, least - len(found))]])


def _existing() -> Mapping[int, bool]:
    folder = backend.project_folder()
    place = backend.find(folder)
    return states.machines(folder, place, pulumi.get_project(), pulumi.get_stack())
