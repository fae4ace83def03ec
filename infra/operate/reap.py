"""`python -m infra.operate.reap`: finds our things in cloud accounts that no stack's state has.

Compares them with the states of all stacks of this state backend. By default it changes
nothing, and exits with 1 when an instance of this owner and backend is orphaned, or one of a stack
runs past its end. Things of another backend's stacks may be in their states: they are listed, and
ended only by id. Secrets in states are not read: ids and types are there in the clear.
"""

import argparse
import itertools
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pulumi

from infra.machines import local, sources
from infra.machines.holdings import INSTANCE, Account, Holding
from infra.operate import arguments, backend, states
from infra.operate.backend import Backend
from infra.operate.states import RecordedStack
from trainyard.access import terminal

IN_STATE = "in state"
PAST_END = "past its end"  # in state, and its timer has not ended it
LATE = timedelta(minutes=15)  # time that an instance may take to end, with tries of its timer
UNDER_WAY = "under way"  # a killed or running `up` of a stack that is known made it
WIDE = 200  # characters
TITLES = ("", "id", "name", "type", "region", "$/h", "owner", "stack", "verdict")
ORPHAN = "orphan"
OTHER_OWNER = "other owner"
OTHER_BACKEND = "of another backend"
NO_BACKEND = "of no known backend"  # made before instances were marked with it
# Verdicts on things that may be ended by id, although they are in no state of this backend.
ENDABLE = (ORPHAN, OTHER_BACKEND, NO_BACKEND)
NOT_OURS = "not ours"


@dataclass(frozen=True, kw_only=True)
class Judgment(Holding):
    """A thing in an account, and the verdict on it."""

    verdict: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when there are orphans, or something failed."""
    options = _parser().parse_args(argv)
    return arguments.run(lambda: _run(options))


def judge(
    held: Iterable[Holding],
    stacks: Sequence[RecordedStack],
    owner: str,
    backends: Collection[str],
    now: datetime,
) -> list[Judgment]:
    """Return all holdings, with a verdict on each; the orphans of one owner count.

    The accounts are read before the states: an instance launched in between is in a state or under
    way. `backends` are ids of the state backend that the stacks are in.
    """
    late = {id_ for each in stacks for id_, at in each.ends.items() if at + LATE <= now}
    known = {id_ for stack in stacks for id_ in stack.ids}
    busy = {stack.mark for stack in stacks if stack.busy}

    def verdict(finding: Holding) -> str:
        if finding.id in known:
            return PAST_END if finding.id in late else IN_STATE
        if not finding.mark:
            return NOT_OURS
        if finding.mark in busy and not _is_over(finding, now):
            return UNDER_WAY
        # Things without tags do not name their owner.
        if finding.owner not in ("", owner):
            return OTHER_OWNER
        if not finding.backend:
            return NO_BACKEND
        return ORPHAN if finding.backend in backends else OTHER_BACKEND

    return [Judgment(**{**vars(each), "verdict": verdict(each)}) for each in held]


def past_end(
    findings: Iterable[Judgment],
    stacks: Sequence[RecordedStack],
    backends: Collection[str],
    now: datetime,
) -> list[Judgment]:
    """Return the instances of this state backend that run past their end, of any owner.

    For those in no state, the account tells the end that they were launched with. Without a
    stack, the states do not tell which instances are in none.
    """
    return [
        each
        for each in findings
        if each.verdict == PAST_END
        or (
            each.verdict in (ORPHAN, OTHER_OWNER)
            and bool(stacks)
            and each.backend in backends
            and _is_over(each, now)
        )
    ]


def to_end(findings: Sequence[Judgment], ids: Sequence[str]) -> list[Judgment]:
    """Return the instances to end: the named ones, else all orphans.

    Raises:
        pulumi.RunError: a name belongs to no instance that may be ended here.
    """
    instances = {finding.id: finding for finding in findings if finding.kind == INSTANCE}
    if not ids:
        return [finding for finding in instances.values() if finding.verdict == ORPHAN]
    for id_ in ids:
        if id_ not in instances:
            raise pulumi.RunError(f"the account has no instance {id_}. Nothing was ended")
        finding = instances[id_]
        if finding.verdict not in ENDABLE:
            raise pulumi.RunError(
                f"{id_} is {finding.verdict}: {_WAYS[finding.verdict]}. Nothing was ended"
            )
    return [instances[id_] for id_ in dict.fromkeys(ids)]


_WAYS = {
    IN_STATE: "destroy its stack",
    PAST_END: "destroy its stack, or end all that are past their end, with --past-end",
    UNDER_WAY: "run up or destroy of its stack",
    OTHER_OWNER: "name the owner too, with --owner",
    NOT_OURS: "end it on the account's page",
}


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("infra.operate.reap", __doc__, stack=None)
    parser.add_argument(
        "--owner", default="", help="owner of the orphans (default: you on this machine)"
    )
    parser.add_argument(
        "--end",
        nargs="*",
        metavar="ID",
        help="end instances: the named ones, else all orphans of the owner and this state backend",
    )
    parser.add_argument("--yes", action="store_true", help="end them without asking")
    parser.add_argument(
        "--expired", action="store_true", help="destroy this project's stacks past their ttlHours"
    )
    parser.add_argument(
        "--past-end",
        action="store_true",
        help="end instances whose timers failed to end them, without asking",
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON")
    return parser


def _run(options: argparse.Namespace) -> int:
    folder, owner = options.cwd.resolve(), local.owner(options.owner)
    place = backend.find(folder)
    accounts, closed = _accounts()
    held = {account: account.holdings() for account in accounts}
    stacks = states.read_stacks(folder, place)
    for stack in stacks:
        if stack.cloud in closed:
            raise closed[stack.cloud]
    backends = ids(place, stacks)
    now = datetime.now(UTC)
    findings = judge(itertools.chain(*held.values()), stacks, owner, backends, now)
    expired = [stack for stack in stacks if stack.expires is not None and stack.expires <= now]
    orphans = to_end(findings, [])
    late = past_end(findings, stacks, backends, now)
    if options.json:
        document = {
            "backend": sorted(backends),
            "findings": [asdict(finding) for finding in findings],
            "expired": [f"{stack.project}/{stack.name}" for stack in expired],
            "orphansHourlyCost": round(_price(orphans), 2),
        }
        terminal.print_json(document, indent=2)
    else:
        _show(findings, expired, _summary(findings, orphans, late, owner))
    left = {*orphans, *late}
    if options.end is not None:
        left -= set(_end(held, findings, options, place, stacks, backends))
    if options.past_end:
        # It stays a finding: find out why its timer did not end it.
        _end_all(held, late)
    failed = False
    for stack in expired if options.expired else ():
        if _destroy(stack, folder):
            failed = True
        else:
            left -= {finding for finding in late if finding.id in stack.ids}
    return int(failed or bool(left))


def _accounts() -> tuple[list[Account], dict[str, pulumi.RunError]]:
    """Return the accounts of this environment, and the reason for each missing one, by module."""
    found: list[Account] = []
    closed: dict[str, pulumi.RunError] = {}
    for cloud in sources.CLOUDS:
        try:
            found.append(cloud.account(None))
        except pulumi.RunError as error:
            closed[cloud.module] = error
    if not found:
        raise next(iter(closed.values()))
    return found, closed


def ids(place: Backend, stacks: Sequence[RecordedStack]) -> set[str]:
    """Return the ids of a backend; behind an API, each organization has one."""
    if place.place is not None:
        return {place.id()} - {""}
    return {place.id(stack.organization) for stack in stacks}


def _end(
    held: Mapping[Account, Sequence[Holding]],
    findings: Sequence[Judgment],
    options: argparse.Namespace,
    place: Backend,
    stacks: Sequence[RecordedStack],
    backends: Collection[str],
) -> list[Judgment]:
    """End the instances that the user wants ended; return them."""
    if not options.end:
        _check_certain(place, stacks, backends)
    ending = to_end(findings, options.end)
    if ending and not options.yes:
        _ask(ending)
    _end_all(held, ending)
    return ending


def _end_all(held: Mapping[Account, Sequence[Holding]], ending: Sequence[Judgment]) -> None:
    for account, holdings in held.items():
        there = {holding.id for holding in holdings}
        if mine := [finding.id for finding in ending if finding.id in there]:
            account.end(mine)


def _is_over(finding: Holding, now: datetime) -> bool:
    """Return whether an instance is past the end that it was launched with."""
    try:
        return datetime.fromisoformat(finding.end) + LATE <= now
    except (ValueError, TypeError, OverflowError):  # no tags, or changed ones
        return False


def _check_certain(
    place: Backend, stacks: Sequence[RecordedStack], backends: Collection[str]
) -> None:
    where = place.place or place.url
    by_id = "Or name the instances to end: --end ID. Nothing was ended"
    if not stacks:
        raise pulumi.RunError(
            f"the state backend {where} has no stack, so it cannot tell what is orphaned: set "
            f"PULUMI_BACKEND_URL to the one that your stacks are in. {by_id}"
        )
    if not backends:
        raise pulumi.RunError(
            f"the state backend {where} has no id: no `up` has marked anything with it yet, or it "
            f"was copied or moved, and the original may be in use. {by_id}"
        )


def _ask(ending: Sequence[Judgment]) -> None:
    what = f"{len(ending)} instance(s), {_price(ending):.2f} $/h"
    if not sys.stdin.isatty():
        raise pulumi.RunError(f"{what}: no terminal to ask; add --yes. Nothing was ended")
    names = [f"  {each.id} {each.name} ({each.verdict})" for each in ending]
    terminal.warn(
        "\n".join(["These instances end, with all their data:", *map(terminal.clean, names)])
    )
    if not terminal.agree(f"End {what}?"):
        raise pulumi.RunError("nothing was ended")


def _price(found: Iterable[Judgment]) -> float:
    return sum(finding.price for finding in found)


def _summary(
    findings: Sequence[Judgment], orphans: Sequence[Judgment], late: Sequence[Judgment], owner: str
) -> str:
    text = f"{len(orphans)} orphaned instance(s) of {owner}: {_price(orphans):.2f} $/h"
    if late:
        text += (
            f"\n{len(late)} instance(s) past their end: {_price(late):.2f} $/h. End them: "
            "--past-end, or destroy their stacks: --expired"
        )
    elsewhere = [
        each
        for each in findings
        if each.kind == INSTANCE and each.verdict in (OTHER_BACKEND, NO_BACKEND)
    ]
    if elsewhere:
        text += (
            f"\n{len(elsewhere)} of another backend, or of none: {_price(elsewhere):.2f} $/h. Look "
            "there with PULUMI_BACKEND_URL, or end one that nobody has: --end ID"
        )
    return text


def _show(findings: Sequence[Judgment], expired: Sequence[RecordedStack], summary: str) -> None:
    rows = []
    for f in findings:
        price = f"{f.price:.2f}" if f.kind == INSTANCE else ""
        rows.append([f.kind, f.id, f.name, f.type, f.region, price, f.owner, f.stack, f.verdict])
    # A pipe or a log has no width: ids must not be cut there.
    terminal.print_table(
        TITLES, rows, width=None if sys.stdout.isatty() else WIDE, whole=("id", "name", "stack")
    )
    for stack in expired:
        terminal.say(f"stack {stack.project}/{stack.name} is past its time: {stack.expires}")
    terminal.say(summary)


def _destroy(stack: RecordedStack, folder: Path) -> bool:
    """Destroy a stack; return whether that failed."""
    if stack.project != backend.project(folder)["name"]:
        terminal.say(f"{stack.project}/{stack.name}: of another project; name its folder with -C")
        return True
    # The engine of this environment, not a folder of that name in the project's (-P).
    command = [sys.executable, "-P", "-m", "engine.launch", "destroy", "-s", stack.name]
    # Its output goes to the standard error (2): the standard output has the report.
    return subprocess.run(command, cwd=folder, check=False, stdout=2).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
