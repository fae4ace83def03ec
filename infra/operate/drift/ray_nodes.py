"""Compares the nodes that a stack declares with those that Ray's dashboard lists."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from infra.operate import dashboard
from infra.operate.dashboard import AskError
from infra.operate.drift.findings import RAY, Finding, join_or_none, mend
from trainyard.access import outputs

PATH = "/nodes?view=summary"
ALIVE = "ALIVE"

Amounts = tuple[tuple[str, float], ...]  # of CPU, GPU and custom resources, by name


def differing(stack: str, known: Mapping[str, Any], way: dashboard.Way) -> list[Finding]:
    """Return declared nodes that are not alive, and alive ones that are not declared.

    Raises:
        AskError: the dashboard cannot be asked.
    """
    nodes: Sequence[Mapping[str, Any]] = known.get(outputs.NODES) or []
    if not nodes:
        return []
    # Ray gives nodes more resources than these, such as one for the type of an accelerator.
    names = {"CPU", "GPU", *(name for node in nodes for name in node["resources"])}
    declared = {
        str(node["name"]): _amounts(
            {"CPU": node["cpus"], "GPU": node["gpus"], **node["resources"]}, names
        )
        for node in nodes
    }
    alive = [(address, _amounts(has, names)) for address, has in _alive(known, way)]
    # Ray starts and ends the nodes of a group that grows.
    optional = {str(node["name"]) for node in nodes if node.get("onDemand")}
    return compare(stack, declared, alive, optional)


def compare(
    stack: str,
    declared: Mapping[str, Amounts],
    alive: Sequence[tuple[str, Amounts]],
    optional: Collection[str],
) -> list[Finding]:
    """Match declared nodes with alive ones that have as much: Ray does not know our names.

    Optional ones are declared and need not be alive.
    """
    left = Counter(amounts for _, amounts in alive)
    findings = []
    for name, amounts in sorted(declared.items(), key=lambda each: each[0] in optional):
        if left[amounts] > 0:
            left[amounts] -= 1
            continue
        if name in optional:
            continue
        findings.append(
            Finding(
                layer=RAY,
                name=name,
                expected=f"alive with {_words(amounts)}",
                found="alive are: "
                + join_or_none(f"{address} ({_words(amounts)})" for address, amounts in alive),
                action=mend(stack),
            )
        )
    for amounts, count in left.items():
        addresses = join_or_none(address for address, each in alive if each == amounts)
        findings += [
            Finding(
                layer=RAY,
                name=f"node at {addresses}",
                expected="only the nodes of the stack",
                found=f"{count} more with {_words(amounts)}",
                action="end it where it was started, or add it to the settings",
            )
        ] * bool(count)
    return findings


def _alive(known: Mapping[str, Any], way: dashboard.Way) -> list[tuple[str, Mapping[str, Any]]]:
    answer = dashboard.ask_dashboard(known, way, PATH)
    try:
        raylets = [node["raylet"] for node in answer["data"]["summary"]]
        return [
            (str(raylet["nodeManagerAddress"]), dict(raylet["resourcesTotal"]))
            for raylet in raylets
            if raylet.get("state") == ALIVE
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise AskError(f"Ray's dashboard gives no list of nodes ({error!r})") from None


def _amounts(values: Mapping[str, Any], names: Iterable[str]) -> Amounts:
    found = {name: float(values.get(name, 0)) for name in names}
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def _words(amounts: Amounts) -> str:
    return join_or_none(f"{name} {amount:g}" for name, amount in amounts)
