"""Findings about a stack: the lines of a drift report, by layer."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from trainyard.access.terminal import as_json, clean, clean_lines

STATE = "state"
INSTANCES = "instances"
HOSTS = "hosts"
TIMERS = "end times"
SERVICES = "services"
STORE = "buckets and users"
RAY = "Ray nodes"
OUTPUTS = "outputs"
LAYERS = (STATE, INSTANCES, HOSTS, TIMERS, SERVICES, STORE, RAY, OUTPUTS)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        layer: one of LAYERS.
        expected: the state's value; secrets are hidden.
    """

    layer: str
    name: str
    expected: str
    found: str
    action: str


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """A look at one stack.

    Attributes:
        failures: why something could not be looked at.
    """

    stack: str
    looked: int
    findings: Sequence[Finding]
    failures: Sequence[str]

    @property
    def code(self) -> int:
        """Exit code: 1 for an incomplete report, otherwise 2 for drift and 0 for none."""
        if self.failures:
            return 1
        return 2 if self.findings else 0

    def json(self) -> str:
        document = asdict(self) | {"findings": [asdict(each) for each in self._sorted()]}
        return as_json(document, indent=2)

    def text(self) -> str:
        lines = []
        for layer in LAYERS:
            found = [finding for finding in self._sorted() if finding.layer == layer]
            lines += [layer] if found else []
            for finding in found:
                lines += [
                    f"  {clean(finding.name)}",
                    f"    expected  {clean(finding.expected)}",
                    f"    found     {clean(finding.found)}",
                    f"    do        {clean(finding.action)}",
                ]
        lines += [f"not looked at: {clean_lines(failure)}" for failure in self.failures]
        count = len(self.findings)
        lines.append(
            f"stack {self.stack}: {self.looked} resources looked at, "
            f"{count or 'no'} {'finding' if count == 1 else 'findings'}"
            + (f", {len(self.failures)} not looked at" if self.failures else "")
        )
        return "\n".join(lines)

    def _sorted(self) -> list[Finding]:
        return sorted(self.findings, key=lambda each: (LAYERS.index(each.layer), each.name))


def mend(stack: str) -> str:
    """Return the commands that bring a stack back to what its settings say."""
    return f"make refresh STACK={stack}, then make up STACK={stack}"


def join_or_none(values: Iterable[str]) -> str:
    """Return values as one text; "none" for none."""
    return ", ".join(values) or "none"
