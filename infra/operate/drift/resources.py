"""Finds drift in a stack's resources, by layer."""

from collections.abc import Iterator
from typing import Any

from infra.machines import sources
from infra.operate.drift.findings import (
    HOSTS,
    INSTANCES,
    SERVICES,
    STATE,
    STORE,
    TIMERS,
    Finding,
    mend,
)
from infra.operate.drift.look import ResourceLook, StackLook
from trainyard.access.ssh import Connection, HostKeyError, LoginRefusedError, UnreachableError

PROGRAM = "process:Program"
TIMER = ":Deadline"
INSTANCE = sources.types("Instance")
IN_STORE = ("minio:Bucket", "minio:User", "versitygw:Bucket", "versitygw:User")
LAYERS = {
    **dict.fromkeys(IN_STORE, STORE),
    "host:Reachable": HOSTS,
    "host:Executable": HOSTS,
}
RENTED = tuple(sources.types(""))
# Resources that cannot exist without their dependency: if both differ, only that is reported.
FOLLOWING = (*IN_STORE, ":Ready", ":Active")
# Failures to reach a machine. Any other SshError says nothing about the machine.
UNREACHED = (HostKeyError, LoginRefusedError, UnreachableError)
# Words for the expected and the found value of these properties.
STOPPED = {"mustRun": ("running", "stopped"), "ready": ("running", "stopped")}


def unfinished_steps(looked: StackLook, stack: str) -> Iterator[Finding]:
    """Yield the unfinished steps of an operation that was killed."""
    for kind, name in looked.pending:
        yield Finding(
            layer=STATE,
            name=name,
            expected="no operation under way",
            found=f"an interrupted operation was {kind} it",
            action=f"make up STACK={stack}",
        )


def different(looked: StackLook, stack: str) -> tuple[list[Finding], list[str]]:
    """Return resources that are not as recorded, and why others could not be looked at."""
    urns = {each.urn for each in looked.seen if each.differs}
    ended = {each.id for each in looked.seen if each.type in INSTANCE and each.gone}
    findings: dict[tuple[str, str], Finding] = {}
    failures: dict[str, None] = {}
    for each in looked.seen:
        follows = each.type.endswith(FOLLOWING) and each.needs & urns
        if not each.differs or follows or each.props.get("machine") in ended:
            continue
        # One fault, such as a daemon that does not answer, affects many resources.
        if each.error is not None and not isinstance(each.error, UNREACHED):
            failures[each.said] = None
        else:
            finding = _finding(each, stack)
            findings[finding.layer, finding.name] = finding
    return list(findings.values()), list(failures)


def _finding(each: ResourceLook, stack: str) -> Finding:
    if each.error is not None:
        return Finding(
            layer=HOSTS,
            name=_machine(each),
            expected="answers, and proves to be the machine of the state",
            found=each.said,
            action="repair the connection or the machine; if it was set up again, write its new "
            f"host key into the settings, then {mend(stack)}",
        )
    expected, found = _words(each)
    rented = INSTANCES if each.type.startswith(RENTED) else SERVICES
    layer = TIMERS if each.type.endswith(TIMER) else LAYERS.get(each.type, rented)
    return Finding(
        layer=layer,
        name=each.name,
        expected=expected,
        found=found,
        action=mend(stack),
    )


def _machine(each: ResourceLook) -> str:
    host: Any = each.props.get("host") or each.props.get("via")
    if isinstance(host, dict):
        return Connection.of(host).name
    # Resources of pulumi-docker have it in their provider. Errors on the way there begin with it.
    return each.said.partition(" ")[0]


def _words(each: ResourceLook) -> tuple[str, str]:
    """Return the expected and the found state of a resource."""
    if each.fault:
        return "well", each.fault
    if each.type == PROGRAM and each.gone:
        return "running as it was started", "its files were changed or removed by hand"
    if each.gone:
        return f"{each.type} {each.id}", "it is gone"
    if each.type in INSTANCE and "healthy" in each.changes:
        return "a healthy instance", f"instance {each.id} is unhealthy"
    for name, words in STOPPED.items():
        if name in each.changes:
            return words
    return (
        "; ".join(f"{name} {expected}" for name, (expected, _) in each.changes.items()),
        "; ".join(f"{name} {found}" for name, (_, found) in each.changes.items()),
    )
