"""The page: short first, details folded; as Markdown for a comment, or as JSON for programs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from infra.operate.review.facts import Cost, cost, listening, month
from infra.operate.review.jobs import ALL_PODS, HEAD, AtRisk, at_risk
from infra.operate.review.planned import Change, StackPlan
from trainyard.access.markdown import code, text
from trainyard.access.terminal import as_json

VERBS = ("create", "update", "replace", "delete")
COMMIT_LENGTH = 12
LOOPBACK = "127."
# A later run finds the comment to update by this.
MARK = "<!-- trainyard: preview of {stack} -->"


def document(planned: StackPlan) -> dict[str, Any]:
    """Return the whole content of the page, as JSON has it."""
    heard = listening(planned.before), listening(planned.after)
    return {
        "stack": planned.stack,
        "commit": planned.commit,
        "changes": [asdict(change) for change in planned.changes],
        "counts": _counts(planned.changes),
        "cost": asdict(cost(planned.before, planned.after)) | {"month": month(planned)},
        "listening": {"before": heard[0], "after": heard[1]},
        "jobs": asdict(at_risk(planned)),
        "policies": [asdict(verdict) for verdict in planned.verdicts],
        "refused": is_refused(planned),
    }


def is_refused(planned: StackPlan) -> bool:
    """Return whether a mandatory rule stops this plan."""
    return any(verdict.mandatory for verdict in planned.verdicts)


def to_json(planned: StackPlan) -> str:
    """Return the page for programs."""
    return as_json(document(planned), indent=2)


def to_markdown(planned: StackPlan) -> str:
    """Return the page for people."""
    counts = _counts(planned.changes)
    told = ", ".join(f"{count} to {verb}" for verb, count in counts.items()) or "nothing to do"
    price = cost(planned.before, planned.after)
    lines = [
        MARK.format(stack=planned.stack),
        f"## {planned.stack}: {told}",
        *([f"Commit {code(planned.commit[:COMMIT_LENGTH])}"] if planned.commit else []),
        *_cost_lines(price, month(planned)),
        *_policy_lines(planned),
        *_job_lines(at_risk(planned)),
    ]
    if lost := [each.name for each in planned.changes if each.operation in ("replace", "delete")]:
        lines.append(f"- **Replaced or deleted**: {_names(lost)}")
    before, after = listening(planned.before), listening(planned.after)
    new = {*chain(*after.values())} - {*chain(*before.values())}
    if beyond := sorted(address for address in new if not address.startswith(LOOPBACK)):
        lines.append(f"- **Opens beyond loopback**: {_names(beyond)}")
    lines += _folded("Changes", _table(["", "Resource", "What changes"], _rows(planned.changes)))
    rows = [[code(name), _names(heard)] for name, heard in after.items()]
    lines += _folded("What listens where", _table(["Resource", "Addresses"], rows))
    return "\n".join(lines) + "\n"


def _counts(changes: Sequence[Change]) -> dict[str, int]:
    counts = Counter(change.operation for change in changes)
    return {verb: counts[verb] for verb in VERBS if counts[verb]}


def _cost_lines(price: Cost, so_far: float | None) -> Iterator[str]:
    known = [f"{so_far:.2f} $ so far this month"] if so_far else []
    if price.before or price.after:
        line = f"{price.before:.2f} → {price.after:.2f} $/h"
        line += ", without an end" if price.total is None else f", {price.total:.2f} $ to its end"
        known.insert(0, line + (f" (budget {price.budget:.2f} $)" if price.budget else ""))
    if known:
        yield f"- **Cost**: {'; '.join(known)}"


def _policy_lines(planned: StackPlan) -> Iterator[str]:
    for verdict in planned.verdicts:
        level = "refused" if verdict.mandatory else "note"
        yield f"- **Policy, {level}**: {code(verdict.name)}: {text(verdict.message)}"


def _job_lines(risk: AtRisk) -> Iterator[str]:
    if risk.jobs:
        ends = not {HEAD, ALL_PODS}.isdisjoint(risk.nodes)
        what = "all end" if ends else "jobs there go on from their last checkpoint"
        yield f"- **Jobs that run now**: {_names(risk.jobs)}; with {_names(risk.nodes)} {what}"
    elif risk.unknown:
        yield f"- **Jobs that run now** are not known: {text(risk.unknown)}"


def _rows(changes: Iterable[Change]) -> Iterator[list[str]]:
    for change in sorted(changes, key=lambda each: (-VERBS.index(each.operation), each.name)):
        what = "; ".join(
            f"{text(name)}: {text(before)} → {text(after)}"
            for name, (before, after) in change.differs.items()
        )
        yield [change.operation, f"{code(change.name)} ({text(change.type)})", what]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    found = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *found] if found else []


def _folded(title: str, table: Sequence[str]) -> list[str]:
    if not table:
        return []
    return ["", f"<details><summary>{title}</summary>", "", *table, "", "</details>"]


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))
