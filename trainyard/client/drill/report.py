"""A drill's result: times, lost work, and the run's end compared with the undisturbed run's."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TOLERANCE = 1e-6  # of a metric, relative; runs of one seed on one kind of CPU are equal to the bit
NO_METRICS = frozenset({"epoch", "minutes"})  # the latter differs between equal runs


@dataclass(frozen=True, kw_only=True)
class DrillReport:
    """A drill's result."""

    fault: str  # worker-loss, store-loss, head-loss or preempt
    what: str  # the fault in words
    run: str  # the run's name
    undisturbed: str
    status: str  # of the run's job at its end
    # from the fault until Ray or the stack acted on it; None if neither had to
    detected_s: float | None
    resumed_s: float  # from the fault until the first new epoch was stored
    restored: str  # the checkpoint that the run went on from; "" when it was not interrupted
    lost_epochs: float  # trained before the fault and again after it, with parts
    lost_steps: int | None  # the same in steps of the optimizer; None when no log tells the steps
    epochs: tuple[int, int]  # of the run, and of the undisturbed one
    # of the last epoch by name: [the run's, the undisturbed run's]
    metrics: dict[str, tuple[float, float]]
    faults: list[str] = field(default_factory=list)  # why the drill failed; empty when it passed

    @property
    def passed(self) -> bool:
        """Whether the run ended like the undisturbed run."""
        return not self.faults

    def record(self) -> dict[str, Any]:
        """Everything as JSON."""
        return asdict(self) | {"passed": self.passed, "tolerance": TOLERANCE}

    def rows(self) -> list[dict[str, str]]:
        """Everything as lines of a table."""
        detected = "nobody had to act" if self.detected_s is None else f"{self.detected_s:.1f} s"
        steps = "" if self.lost_steps is None else f", about {self.lost_steps} steps"
        rows = {
            self.fault: self.what,
            "detected after": detected,
            "went on from": self.restored or "where it was",
            "next epoch stored after": f"{self.resumed_s:.1f} s",
            "trained twice": f"{self.lost_epochs:.1f} epochs{steps}",
            f"run {self.run}": f"{self.status}, {self.epochs[0]} epochs",
            f"run {self.undisturbed}": f"{self.epochs[1]} epochs",
        }
        for name, (mine, theirs) in self.metrics.items():
            rows[name] = f"{mine:.6g}, undisturbed {theirs:.6g}"
        rows["result"] = "; ".join(self.faults) or (
            f"passed: like the undisturbed run, to {TOLERANCE:g} of each metric"
        )
        return [{"what": name, "value": value} for name, value in rows.items()]


def final_metrics(
    mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> dict[str, tuple[float, float]]:
    """The numbers of both runs' last epochs, by the names that both have."""
    if not mine or not theirs:
        return {}
    return {
        name: (float(value), float(theirs[-1][name]))
        for name, value in mine[-1].items()
        if name not in NO_METRICS and _is_number(value) and _is_number(theirs[-1].get(name))
    }


def differences(
    status: str, mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> list[str]:
    """Says how a run differs from an undisturbed one; empty when it does not."""
    faults = []
    if status != "SUCCEEDED":
        faults.append(f"the run's job is {status}")
    numbers = [record.get("epoch") for record in mine]
    if numbers != list(range(len(mine))):
        faults.append(f"its epochs are {numbers}, not one after another")
    if len(mine) != len(theirs):
        faults.append(f"it has {len(mine)} epochs, the undisturbed run {len(theirs)}")
    faults += [
        f"{name} is {a!r}, undisturbed {b!r}"
        for name, (a, b) in final_metrics(mine, theirs).items()
        if not math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    ]
    return faults


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
