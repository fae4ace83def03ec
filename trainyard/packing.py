"""Packs bundles on nodes: pure arithmetic, for the client and for the order of the queue.

A job's bundles all start at once, so the question is always whether all fit at the same time.
"""

from collections import Counter
from collections.abc import Sequence

MIB = 2**20
UNIT = 1e-4  # Ray counts in ten-thousandths, so that 0.1 + 0.2 fit into 0.3
LOOKED_AT = 20_000  # states of the search, some tenths of a second

Bundle = dict[str, float]
"""Amounts by Ray's resource names that one node must have together; memory in bytes."""

Amounts = tuple[int, ...]
"""The same in Ray's units, for a list of names."""


class GaveUpError(Exception):
    """The search looked at so many states that it ended without an answer."""


def units(amount: float) -> int:
    """An amount in the units in which Ray compares."""
    return round(amount / UNIT)


def amounts(bundle: Bundle, names: Sequence[str]) -> Amounts:
    """The amounts of these resources, in their order."""
    return tuple(units(bundle.get(name, 0)) for name in names)


def describe(bundle: Bundle) -> str:
    """A bundle in words: `CPU 2, GPU 1, memory 512 MiB`."""
    parts = [
        f"{name} {amount / MIB:.0f} MiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in bundle.items()
    ]
    return ", ".join(parts)


def place(
    bundles: Sequence[Amounts], free: Sequence[Amounts], looked_at: int = LOOKED_AT
) -> tuple[int, ...] | None:
    """Find a node for each bundle so that all fit at the same time.

    Kind by kind, the largest first: a node takes as many of a kind as fit, the nodes after it take
    the rest; if that fails, the node takes fewer. Nodes with little of the first resource come
    first, so that large gaps stay.

    Bundles and nodes have the same resources in the same order. The search is given up after
    `looked_at` states. The result is the index of a node for each bundle, None if they do not fit.

    Raises:
        GaveUpError: the search took too long.
    """
    if not free:
        return None if bundles else ()
    kinds = Counter(bundles)
    # A bundle that asks for nothing that counts is anywhere.
    kinds.pop(tuple(0 for _ in (bundles[0] if bundles else ())), None)
    room = [max(column, default=0) or 1 for column in zip(*free, strict=True)]
    order = sorted(
        kinds, key=lambda kind: max(a / b for a, b in zip(kind, room, strict=True)), reverse=True
    )
    counts = [kinds[kind] for kind in order]
    nodes = [i for i, node in enumerate(free) if any(_how_often(kind, node) for kind in order)]
    nodes.sort(key=lambda i: free[i])
    found = _search(order, counts, tuple(free[i] for i in nodes), looked_at)
    if found is None:
        return None
    placed: dict[Amounts, list[int]] = {kind: [] for kind in order}
    for kind, node, count in found:
        placed[order[kind]] += [nodes[node]] * count
    return tuple(placed[bundle].pop() if bundle in placed else 0 for bundle in bundles)


Taken = tuple[tuple[int, int, int], ...]  # each a kind, a node, and how many of them it takes


def _search(
    order: Sequence[Amounts], counts: Sequence[int], start: tuple[Amounts, ...], bound: int
) -> Taken | None:
    if not order:
        return ()
    if not _may_fit(order, counts, start):
        return None
    # The current kind, how many of it are left, the next node to look at, the free amounts, and
    # what is placed.
    stack: list[tuple[int, int, int, tuple[Amounts, ...], Taken]] = [(0, counts[0], 0, start, ())]
    seen = set()
    looked_at = 0
    while stack:
        kind, left, node, now, taken = stack.pop()
        if left == 0:
            kind, node = kind + 1, 0
            if kind >= len(order):
                return taken
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
            more = (*taken, (kind, node, count)) if count else taken
            stack.append((kind, left - count, node + 1, after, more))
            looked_at += 1
        if looked_at > bound:
            raise GaveUpError
    return None


def _may_fit(kinds: Sequence[Amounts], counts: Sequence[int], free: Sequence[Amounts]) -> bool:
    """Whether the nodes together have enough of each resource, and enough room for each kind."""
    for i in range(len(kinds[0])):
        asked = sum(n * kind[i] for kind, n in zip(kinds, counts, strict=True))
        if asked > sum(node[i] for node in free):
            return False
    return all(
        sum(_how_often(kind, node) for node in free) >= n
        for kind, n in zip(kinds, counts, strict=True)
    )


def _how_often(bundle: Amounts, node: Amounts) -> int:
    return min(has // wants for has, wants in zip(node, bundle, strict=True) if wants > 0)
