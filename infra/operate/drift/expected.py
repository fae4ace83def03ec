"""Outputs that a stack must have, and its end time in them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cluster import services
from infra.operate.drift.findings import OUTPUTS, TIMERS, Finding
from trainyard.access import outputs

# Outputs of every stack; services add their own.
NAMES = {
    value for name, value in vars(outputs).items() if name.isupper() and isinstance(value, str)
}


def differing(stack: str, known: Mapping[str, Any], now: datetime) -> list[Finding]:
    """Return missing outputs, and an end time of the machines that has passed."""
    names = NAMES | {name for endpoint in services.ENDPOINTS for name in endpoint.outputs}
    findings = [
        Finding(
            layer=OUTPUTS,
            name=name,
            expected="an output of the stack",
            found="the state has none: the last up did not finish, or was by an older version",
            action=f"make up STACK={stack}",
        )
        for name in names - known.keys()
    ]
    ends = str(known.get(outputs.EXPIRES_AT) or "")
    if ends and datetime.fromisoformat(ends) <= now:
        findings.append(
            Finding(
                layer=TIMERS,
                name=outputs.EXPIRES_AT,
                expected=f"machines that end at {ends}",
                found=f"it is {now.astimezone(UTC).isoformat(timespec='seconds')}, and the stack "
                "has a state",
                action=f"make down STACK={stack}, or raise ttlHours or reservation.end and "
                f"make up STACK={stack}",
            )
        )
    return findings
