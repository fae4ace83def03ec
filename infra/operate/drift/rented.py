"""Instances that the account has and no state knows: billed, but unused."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.machines import local, sources
from infra.machines.holdings import INSTANCE
from infra.operate import backend, reap, states
from infra.operate.drift import resources
from infra.operate.drift.findings import INSTANCES, Finding
from infra.operate.drift.look import ResourceLook
from trainyard.access import typed

TAG = "trainyard:owner"


def unknown(folder: Path, seen: Sequence[ResourceLook]) -> list[Finding]:
    """Return instances of this owner and state backend that are in no state.

    A stack that rents nothing has no account to ask.

    Raises:
        pulumi.RunError: an account does not answer, or a state cannot be read.
    """
    types = {each.type for each in seen}
    clouds = [cloud for cloud in sources.CLOUDS if f"{cloud.module}:Account" in types]
    if not clouds:
        return []
    # The accounts first: an instance launched in between is then in a state or under way.
    held = [holding for cloud in clouds for holding in cloud.account(None).holdings()]
    place = backend.find(folder)
    stacks = states.read_stacks(folder, place)
    # The owner in the stack's tags: another user, such as a runner, may ask for the report.
    tags = [each.props.get("tags") or {} for each in seen if each.type in resources.INSTANCE]
    owner = next((str(each[TAG]) for each in tags if TAG in each), local.owner(""))
    judged = reap.judge(held, stacks, owner, reap.ids(place, stacks), datetime.now(UTC))
    return [
        Finding(
            layer=INSTANCES,
            name=f"{each.name} ({each.id})",
            expected="in the state of a stack",
            found=f"{each.type} in {each.region}, {each.price:.2f} $/h, in no state",
            action=typed.command(f"train reap --end {each.id}"),
        )
        for each in judged
        if each.kind == INSTANCE and each.verdict == reap.ORPHAN
    ]
