"""Whether a request fits the declared nodes: pure arithmetic, so it answers at once.

Only a request that certainly does not fit is refused: if the search takes too long, the request
passes, and Ray finds out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainyard.client.console import say
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Node, StackOutputs

MIB = 2**20
UNIT = 1e-4  # Ray counts in ten-thousandths, so that 0.1 + 0.2 fit into 0.3
LOOKED_AT = 20_000  # states of the search, some tenths of a second
# The setting of a stack that gives a node more of a resource; custom ones are below the last.
SETTINGS = {"CPU": "worker.cpus", "GPU": "worker.gpus", "memory": "worker.memoryMib"}
CUSTOM = "worker.resources"

Bundle = dict[str, float]
"""Amounts by Ray's resource names that one node must have together; memory in bytes."""


def check_fits(bundles: Sequence[Bundle], outputs: StackOutputs) -> None:
    """Refuses a request that the declared nodes can never hold; says which are to be started.

    Raises:
        ClientError: naming the largest node.
    """
    why = shortfall(bundles, outputs.nodes)
    if why is not None:
        more = (
            "add a node to the cluster"
            if outputs.attached
            else f"declare a larger node in the settings of stack {outputs.stack!r} and run "
            "`make up`"
        )
        raise ClientError(f"the job {why}: ask for less, {more}, or queue it anyway with --force")
    if groups := started(bundles, outputs.nodes):
        said = [_priced(bundles, outputs, group) for group in groups]
        rented = any(node.hourly_cost for node in outputs.nodes if node.group in groups)
        say(
            f"needs nodes on demand, of {' or '.join(said)}: missing ones are started, and end "
            "when they are idle"
            + (f" (by `make scale STACK={outputs.stack}`, which has to run)" if rented else "")
        )


def capacity(node: Node) -> Bundle:
    """All that a node declares, by Ray's resource names."""
    return {
        "CPU": node.cpus,
        "GPU": node.gpus,
        "memory": node.memory_mib * MIB,
        **node.resources,
    }


def plain(nodes: Sequence[Node], given: Bundle) -> Bundle:
    """Return the bundle of a script that computes itself: a CPU of a worker, and a GPU if one fits.

    Heads are for the drivers of jobs. Only where no worker has room, the head is asked for them.

    Args:
        nodes: the declared nodes, the head first.
        given: what the user asks for, which takes precedence; 0 for none of a resource.
    """
    asked = [usual | given for usual in ({"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0})]
    places = [[capacity(node) for node in group] for group in (nodes[1:], nodes[:1])]
    return next(
        (
            bundle
            for group in places
            for bundle in asked
            if any(_fits(bundle, node) for node in group)
        ),
        given,
    )


def shortfall(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> str | None:
    """Says why a set of bundles can never be placed at the same time, on idle nodes.

    Returns:
        None when everything fits, else a sentence with the request and what the nodes have.
    """
    asked = [bundle for each in bundles if (bundle := {k: v for k, v in each.items() if _units(v)})]
    free = [capacity(node) for node in nodes]
    for bundle in asked:
        if not any(_fits(bundle, node) for node in free):
            return _too_large(bundle, nodes)
    if _place(asked, free) is not False:
        return None
    names = dict.fromkeys(name for bundle in asked for name in bundle)
    total = {name: sum(bundle.get(name, 0) for bundle in asked) for name in names}
    room = {name: sum(node.get(name, 0) for node in free) for name in total}
    return (
        f"asks for {len(asked)} bundles at the same time ({describe(total)} in all: "
        f"{'; '.join(describe(bundle) for bundle in distinct(asked))}); each fits a node but not "
        f"all fit together; the {len(nodes)} nodes have {describe(room)} in all"
    )


def started(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> list[str]:
    """Names the groups whose nodes must be started for a request that fits."""
    if shortfall(bundles, [node for node in nodes if not node.on_demand]) is None:
        return []
    fitting = [
        node.group
        for node in nodes
        if node.on_demand and any(_fits(bundle, capacity(node)) for bundle in bundles)
    ]
    return list(dict.fromkeys(fitting))


def price(bundles: Sequence[Bundle], nodes: Sequence[Node], group: str) -> tuple[int, float]:
    """Return the least number of a group's nodes that a request needs, and their cost in $/h.

    The request fits with nodes of that group, which `started` has named.
    """
    always = [node for node in nodes if not node.on_demand]
    more = [node for node in nodes if node.on_demand and node.group == group]
    for count in range(1, len(more)):
        if shortfall(bundles, [*always, *more[:count]]) is None:
            return count, sum(node.hourly_cost for node in more[:count])
    return len(more), sum(node.hourly_cost for node in more)


def growth(bundles: Sequence[Bundle], outputs: StackOutputs) -> str:
    """Says what to do with a cluster so that bundles with a shortfall can be placed."""
    if outputs.attached:
        return "add nodes to the cluster that hold it"
    return f"{remedy(bundles, outputs.nodes)} and run `make up`"


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


def _priced(bundles: Sequence[Bundle], outputs: StackOutputs, group: str) -> str:
    count, cost = price(bundles, outputs.nodes, group)
    return f"{group} ({count} or more: {cost:.2f} $/h)" if cost else group


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
    """The resources of a bundle of which no node has enough."""
    return [
        name
        for name, amount in bundle.items()
        if all(capacity(node).get(name, 0) < amount for node in nodes)
    ]


def _setting(name: str, amount: float) -> str:
    if name in SETTINGS:
        return f"{SETTINGS[name]} to {amount / MIB if name == 'memory' else amount:g}"
    return f"{name} of {CUSTOM} to {amount:g}"


def _place(bundles: list[Bundle], free: list[Bundle]) -> bool | None:
    """Whether all fit at the same time; None if the search is given up.

    Kind by kind, the largest first: a node takes as many of a kind as fit, the nodes after it take
    the rest; if that fails, the node takes fewer.
    """
    names = sorted({name for bundle in bundles for name in bundle})
    kinds = Counter(tuple(_units(bundle.get(name, 0)) for name in names) for bundle in bundles)
    start = tuple(tuple(_units(node.get(name, 0)) for name in names) for node in free)
    room = [max(column, default=0) or 1 for column in zip(*start, strict=True)]
    order = sorted(
        kinds, key=lambda kind: max(a / b for a, b in zip(kind, room, strict=True)), reverse=True
    )
    counts = [kinds[kind] for kind in order]
    if not _may_fit(order, counts, start):
        return False
    # The current kind, how many of it are left, the next node to look at, and the free amounts.
    stack = [(0, counts[0] if counts else 0, 0, start)]
    seen = set()
    looked_at = 0
    while stack:
        kind, left, node, now = stack.pop()
        if left == 0:
            kind, node = kind + 1, 0
            if kind >= len(order):
                return True
            left = counts[kind]
            state = (kind, tuple(sorted(now)))  # nodes with equal amounts are alike
            if state in seen or not _may_fit(order[kind:], counts[kind:], now):
                continue
            seen.add(state)
        if node == len(now):
            continue
        bundle = order[kind]
        most = min(left, _how_often(bundle, now[node]))
        behind = sum(_how_often(bundle, other) for other in now[node + 1 :])
        for count in range(max(0, left - behind), most + 1):  # the last is looked at first
            rest = tuple(has - count * wants for has, wants in zip(now[node], bundle, strict=True))
            after = (*now[:node], rest, *now[node + 1 :])
            stack.append((kind, left - count, node + 1, after))
            looked_at += 1
        if looked_at > LOOKED_AT:
            return None
    return False


Amounts = tuple[int, ...]


def _may_fit(kinds: Sequence[Amounts], counts: Sequence[int], free: Sequence[Amounts]) -> bool:
    """Whether the nodes together have enough of each resource."""
    asked = [sum(n * kind[i] for kind, n in zip(kinds, counts, strict=True)) for i in _places(free)]
    return all(sum(node[i] for node in free) >= asked[i] for i in _places(free))


def _places(free: Sequence[Amounts]) -> range:
    return range(len(free[0]) if free else 0)


def _how_often(bundle: Amounts, node: Amounts) -> int:
    return min(has // wants for has, wants in zip(node, bundle, strict=True) if wants > 0)


def _fits(bundle: Bundle, node: Bundle) -> bool:
    return all(_units(node.get(name, 0)) >= _units(amount) for name, amount in bundle.items())


def _units(amount: float) -> int:
    return round(amount / UNIT)


def distinct(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Return each bundle once."""
    return [bundle for i, bundle in enumerate(bundles) if bundle not in bundles[:i]]
