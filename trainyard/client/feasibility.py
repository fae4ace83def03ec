"""Whether a request fits the declared nodes: pure arithmetic, so it answers at once.

Only a request that certainly does not fit is refused: if the search takes too long, the request
passes, and Ray finds out.
"""

from collections.abc import Sequence

from trainyard.client.console import say
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Node, StackOutputs
from trainyard.packing import MIB, Bundle, GaveUpError, amounts, describe, place, units

# The setting of a stack that gives a node more of a resource; custom ones are below the last.
SETTINGS = {"CPU": "worker.cpus", "GPU": "worker.gpus", "memory": "worker.memoryMib"}
CUSTOM = "worker.resources"


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
    asked = [bundle for each in bundles if (bundle := {k: v for k, v in each.items() if units(v)})]
    free = [capacity(node) for node in nodes]
    for bundle in asked:
        if not any(_fits(bundle, node) for node in free):
            return _too_large(bundle, nodes)
    names = list(dict.fromkeys(name for bundle in asked for name in bundle))
    try:
        placed = place([amounts(each, names) for each in asked], [amounts(f, names) for f in free])
    except GaveUpError:
        return None
    if placed is not None:
        return None
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


def _fits(bundle: Bundle, node: Bundle) -> bool:
    return all(units(node.get(name, 0)) >= units(amount) for name, amount in bundle.items())


def distinct(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Return each bundle once."""
    return [bundle for i, bundle in enumerate(bundles) if bundle not in bundles[:i]]
