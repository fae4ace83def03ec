"""Does a request fit the declared nodes? Pure arithmetic, so it answers at once."""

from __future__ import annotations

from collections.abc import Sequence

from training.client.outputs import Node

MIB = 2**20
# The setting of a stack that gives a node more of a resource; custom ones are below the last.
SETTINGS = {"CPU": "worker.cpus", "GPU": "worker.gpus", "memory": "worker.memoryMib"}
CUSTOM = "worker.resources"

Bundle = dict[str, float]
"""Amounts by Ray's resource names that one node must have together; memory in bytes."""


def capacity(node: Node) -> Bundle:
    """All that a node declares, by Ray's resource names."""
    return {
        "CPU": node.cpus,
        "GPU": node.gpus,
        "memory": node.memory_mib * MIB,
        **node.resources,
    }


def shortfall(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> str | None:
    """Says why a set of bundles can never be placed at the same time.

    Args:
        bundles: the entrypoint's request (may be empty) and one bundle per worker.
        nodes: the declared nodes, taken as idle.

    Returns:
        None when everything fits, else a sentence with the request and what the nodes have.
    """
    asked = [bundle for each in bundles if (bundle := {k: v for k, v in each.items() if v > 0})]
    free = [capacity(node) for node in nodes]
    for bundle in asked:
        if not any(_fits(bundle, node) for node in free):
            return _too_large(bundle, nodes)
    if _place(asked, free):
        return None
    total = {name: sum(b.get(name, 0) for b in asked) for b in asked for name in b}
    room = {name: sum(node.get(name, 0) for node in free) for name in total}
    return (
        f"asks for {len(asked)} bundles at the same time ({describe(total)} in all: "
        f"{'; '.join(describe(bundle) for bundle in _distinct(asked))}); each fits a node but not "
        f"all fit together; the {len(nodes)} nodes have {describe(room)} in all"
    )


def remedy(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> str:
    """Says what to change of a stack so that bundles with a shortfall can be placed."""
    for bundle in bundles:
        lacks = _lacking(bundle, nodes)
        if not any(_fits(bundle, capacity(node)) for node in nodes):
            settings = ", ".join(_setting(name, bundle[name]) for name in lacks or bundle)
            return (
                f"set {settings} in the stack's settings, or add a host that has {describe(bundle)}"
            )
    return "set workers to a larger number in the stack's settings, or add hosts"


def describe(bundle: Bundle) -> str:
    """A bundle in words: `CPU 2, GPU 1, memory 512 MiB`."""
    parts = [
        f"{name} {amount / MIB:.0f} MiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in bundle.items()
    ]
    return ", ".join(parts)


def _too_large(bundle: Bundle, nodes: Sequence[Node]) -> str:
    if not nodes:
        return f"asks for {describe(bundle)} on one node, and the stack declares no node"
    order = [*(_lacking(bundle, nodes) or bundle), "GPU", "CPU", "memory"]
    largest = max(nodes, key=lambda node: [capacity(node).get(name, 0) for name in order])
    has = {name: capacity(largest).get(name, 0) for name in dict.fromkeys(["CPU", "GPU", *bundle])}
    return (
        f"asks for {describe(bundle)} on one node, which no node has; "
        f"the largest, {largest.name}, has {describe(has)}"
    )


def _lacking(bundle: Bundle, nodes: Sequence[Node]) -> list[str]:
    """What of a bundle no node has enough of, whatever else it has."""
    return [
        name
        for name, amount in bundle.items()
        if all(capacity(node).get(name, 0) < amount for node in nodes)
    ]


def _setting(name: str, amount: float) -> str:
    if name in SETTINGS:
        return f"{SETTINGS[name]} to {amount / MIB if name == 'memory' else amount:g}"
    return f"{name} of {CUSTOM} to {amount:g}"


def _place(bundles: list[Bundle], free: list[Bundle]) -> bool:
    """First fit, largest bundle first; the largest is tried on every node in turn."""
    if not bundles:
        return True
    scale = {name: max(node.get(name, 0) for node in free) for b in bundles for name in b}
    ordered = sorted(bundles, key=lambda b: -max(v / scale[k] for k, v in b.items()))
    first, rest = ordered[0], ordered[1:]
    tried: list[Bundle] = []
    for node in free:
        if node in tried or not _fits(first, node):
            continue
        tried.append(node)
        if _first_fit(rest, [_minus(n, first) if n is node else n for n in free]):
            return True
    return False


def _first_fit(bundles: list[Bundle], free: list[Bundle]) -> bool:
    for bundle in bundles:
        place = next((i for i, node in enumerate(free) if _fits(bundle, node)), None)
        if place is None:
            return False
        free[place] = _minus(free[place], bundle)
    return True


def _fits(bundle: Bundle, node: Bundle) -> bool:
    # Ray counts in ten-thousandths; a float's dust must not refuse 0.1 + 0.2 out of 0.3.
    return all(node.get(name, 0) + 1e-6 >= amount for name, amount in bundle.items())


def _minus(node: Bundle, bundle: Bundle) -> Bundle:
    return {name: amount - bundle.get(name, 0) for name, amount in node.items()}


def _distinct(bundles: Sequence[Bundle]) -> list[Bundle]:
    return [bundle for i, bundle in enumerate(bundles) if bundle not in bundles[:i]]
