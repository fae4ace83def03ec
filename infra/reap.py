"""`python -m infra.reap`: what of ours the Lambda Cloud account holds that no stack knows.

Compares the account with the states of all stacks of this state backend. By default it changes
nothing, and exits with 1 when an instance of this owner is orphaned. Secrets in states are not
read: ids and types stand there in the clear.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from infra.hosts.lambda_cloud import identity, machines
from infra.hosts.lambda_cloud.account import open_account
from infra.hosts.lambda_cloud.errors import LambdaError
from infra.hosts.lambda_cloud.pacing import Paced

ROOT = Path(__file__).parents[1]
# Types of resources, as states have them; HOLDING have the ids of things in the account.
ACCOUNT = "pulumi-python:dynamic/lambda:Account"
RENTED = "pulumi-python:dynamic/lambda:Instance"
HOLDING = {
    RENTED,
    "pulumi-python:dynamic/lambda:SshKey",
    "pulumi-python:dynamic/lambda:FirewallRuleset",
}
IN_STATE = "in state"
UNDER_WAY = "under way"  # a killed or running `up` of a stack that is known made it
WIDE = 200  # characters
INSTANCE = "instance"
ORPHAN = "orphan"
OTHER_OWNER = "other owner"
NOT_OURS = "not ours"


class ReapError(Exception):
    """Nothing was ended; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a stack's state says of the account.

    Attributes:
        project: of the stack.
        name: of the stack.
        ids: of its things in the account.
        mark: id that its things bear, "" without one.
        busy: a create was begun and not ended, so an instance may be missing from the state.
        expires: when the last of its instances has lived its time, None for never.
    """

    project: str
    name: str
    ids: frozenset[str]
    mark: str
    busy: bool
    expires: datetime | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing in the account.

    Attributes:
        kind: instance, key or ruleset.
        price: $/h; only instances have one.
        mark: id of the stack that it bears, "" when it is not ours.
    """

    kind: str
    id: str
    name: str
    type: str = ""
    region: str = ""
    price: float = 0.0
    owner: str = ""
    stack: str = ""
    mark: str = ""
    verdict: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 when there are orphans, or something failed."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except (ReapError, LambdaError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1


def holdings(api: Paced) -> list[Finding]:
    """Return what the account holds; whether a state knows it is not told yet."""
    found = [
        Finding(
            kind=INSTANCE,
            id=machine.id,
            name=machine.name,
            type=machine.instance_type,
            region=machine.region,
            price=machine.price_cents_per_hour / 100,
            owner=machine.tags.get(identity.OWNER, ""),
            stack=machine.tags.get(identity.STACK, ""),
            mark=machine.tags.get(identity.ID, ""),
        )
        for machine in api.instances()
        if machine.status != "terminated"
    ]
    found += [
        Finding(kind="key", id=key.id, name=key.name, mark=identity.id_in_key(key.public_key))
        for key in api.ssh_keys()
    ]
    found += [
        Finding(
            kind="ruleset",
            id=ruleset.id,
            name=ruleset.name,
            region=ruleset.region,
            mark=identity.id_in_name(ruleset.name),
        )
        for ruleset in api.firewall_rulesets()
    ]
    return found


def read_stacks(folder: Path) -> list[Stack]:
    """Return the stacks of a project's state backend.

    Args:
        folder: of the project: its Pulumi.yaml may name the backend.

    Raises:
        ReapError: a state cannot be read, so nothing can be told from what is missing in it.
    """
    url = os.environ.get("PULUMI_BACKEND_URL") or _project(folder)[1] or _login()
    if url.startswith("file://"):
        place = (folder / Path(url.removeprefix("file://")).expanduser()).resolve() / ".pulumi"
        return [_stack(*found) for found in _states(place)]
    return [_stack(*found) for found in _exports(folder, url)]


def judge(found: Iterable[Finding], stacks: Sequence[Stack], owner: str) -> list[Finding]:
    """Return the findings with their verdicts.

    Args:
        found: what the account held before the states were read: what is launched in between is
            then in a state or under way.
        stacks: all stacks that there are.
        owner: whose orphans count.
    """
    known = {id_ for stack in stacks for id_ in stack.ids}
    busy = {stack.mark for stack in stacks if stack.busy}

    def verdict(finding: Finding) -> str:
        if finding.id in known:
            return IN_STATE
        if not finding.mark:
            return NOT_OURS
        if finding.mark in busy:
            return UNDER_WAY
        # What takes no tags does not say whose it is.
        return ORPHAN if finding.owner in ("", owner) else OTHER_OWNER

    return [replace(finding, verdict=verdict(finding)) for finding in found]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.reap", description=__doc__)
    parser.add_argument(
        "-C", "--cwd", type=Path, default=ROOT, help="folder of the project (this checkout)"
    )
    parser.add_argument("--owner", default="", help="whose orphans (you on this machine)")
    parser.add_argument("--end", action="store_true", help="end orphaned instances of the owner")
    parser.add_argument(
        "--expired", action="store_true", help="destroy this project's stacks past their ttlHours"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON")
    return parser


def _run(options: argparse.Namespace) -> int:
    folder, owner = options.cwd.resolve(), identity.owner(options.owner)
    api = open_account(None)
    held = holdings(api)
    stacks = read_stacks(folder)
    findings = judge(held, stacks, owner)
    now = datetime.now(UTC)
    expired = [stack for stack in stacks if stack.expires is not None and stack.expires <= now]
    orphans = [f for f in findings if f.kind == INSTANCE and f.verdict == ORPHAN]
    price = sum(orphan.price for orphan in orphans)
    summary = f"{len(orphans)} orphaned instance(s) of {owner}: {price:.2f} $/h"
    if options.json:
        document = {
            "findings": [asdict(finding) for finding in findings],
            "expired": [f"{stack.project}/{stack.name}" for stack in expired],
            "orphansHourlyCost": round(price, 2),
        }
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        _show(findings, expired, summary)
    failed = bool(orphans) and not options.end
    if options.end and orphans:
        machines.terminate(api, [orphan.id for orphan in orphans], machines.Clock())
    if options.expired:
        for stack in expired:
            failed = _destroy(stack, folder) or failed
    return int(failed)


def _show(findings: Sequence[Finding], expired: Sequence[Stack], summary: str) -> None:
    table = Table("", "id", "name", "type", "region", "$/h", "owner", "stack", "verdict")
    for f in findings:
        price = f"{f.price:.2f}" if f.kind == INSTANCE else ""
        table.add_row(f.kind, f.id, f.name, f.type, f.region, price, f.owner, f.stack, f.verdict)
    # A pipe or a log has no width: ids are not to be cut there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    console.print(table)
    for stack in expired:
        console.print(f"stack {stack.project}/{stack.name} is past its time: {stack.expires}")
    console.print(summary)


def _destroy(stack: Stack, folder: Path) -> bool:
    """Destroy a stack; return whether that failed."""
    if stack.project != _project(folder)[0]:
        print(f"{stack.project}/{stack.name}: of another project; name its folder with -C")  # noqa: T201
        return True
    # The engine of this environment, not a folder of that name in the project's (-P).
    command = [sys.executable, "-P", "-m", "engine.launch", "destroy", "-s", stack.name]
    # Its output goes to the standard error (2): the standard output is the report's.
    return subprocess.run(command, cwd=folder, check=False, stdout=2).returncode != 0


def _project(folder: Path) -> tuple[str, str]:
    """Return the project's name and the backend that it names, "" for none."""
    try:
        document = yaml.safe_load((folder / "Pulumi.yaml").read_text())
        return document["name"], (document.get("backend") or {}).get("url", "")
    except (OSError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ReapError(
            f"{folder / 'Pulumi.yaml'} cannot be read ({error}); name the project's folder with -C"
        ) from error


def _login() -> str:
    """Return the backend that `pulumi login` chose, else the local one."""
    home = Path(os.environ.get("PULUMI_HOME") or "~/.pulumi").expanduser()
    try:
        current: str = json.loads((home / "credentials.json").read_text()).get("current", "")
    except (OSError, ValueError):
        current = ""
    return current or f"file://{Path.home()}"


def _states(place: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield project, stack and deployment of each state in a folder."""
    for backup in sorted((place / "backups").glob("*/*")):
        state = place / "stacks" / backup.parent.name / f"{backup.name}.json"
        if any(backup.glob("*.json")) and not state.exists():
            raise ReapError(
                f"the state {state} is missing, but there are copies of it; restore it, or remove "
                f"{backup} if the stack was removed on purpose. Nothing was ended"
            )
    for path in sorted((place / "stacks").glob("*/*.json*")):
        if path.name.endswith((".bak", ".attrs")):
            continue
        try:
            document = json.loads(path.read_bytes())
            checkpoint = document["checkpoint"]
            # The embedded engine's checksum: an id with a flipped bit would be an orphan.
            if "sha256" in document and document["sha256"] != _digest(checkpoint):
                raise ValueError("its checksum differs")
            yield path.parent.name, path.stem, checkpoint["latest"] or {}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ReapError(
                f"the state {path} cannot be read ({error}); restore it first. Nothing was ended"
            ) from error


def _digest(checkpoint: Any) -> str:
    text = json.dumps(checkpoint, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _exports(folder: Path, url: str) -> Iterator[tuple[str, str, Any]]:
    """Yield project, stack and deployment of each state that the pulumi CLI reaches."""
    if shutil.which("pulumi") is None:
        raise ReapError(
            f"the states are in {url}, which needs the pulumi CLI; put it on PATH. Nothing was "
            "ended"
        )

    def pulumi(*arguments: str) -> Any:
        command = ["pulumi", *arguments, "--non-interactive"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ReapError(f"{' '.join(command)}: {done.stderr.strip()}. Nothing was ended")
        return json.loads(done.stdout)

    for listed in pulumi("stack", "ls", "--all", "--json"):
        name = listed["name"]
        parts = name.split("/")
        project = parts[-2] if len(parts) > 1 else _project(folder)[0]
        yield project, parts[-1], pulumi("stack", "export", "--stack", name)["deployment"]


def _stack(project: str, name: str, deployment: Any) -> Stack:
    pending = deployment.get("pending_operations") or []
    resources = deployment.get("resources") or []
    ids: set[str] = set()
    expiries = []
    mark = ""
    for entry in resources:
        outputs = entry.get("outputs", {})
        if entry["type"] in HOLDING:
            ids |= {entry.get("id", ""), *outputs.get("ids", {}).values()}
        mark = outputs["stackId"] if entry["type"] == ACCOUNT else mark
        if entry["type"] == RENTED and outputs.get("ttlHours"):
            launched = datetime.fromisoformat(outputs["launchedAt"])
            expiries.append(launched + timedelta(hours=float(outputs["ttlHours"])))
    return Stack(
        project=project,
        name=name,
        ids=frozenset(ids - {""}),
        mark=mark,
        busy=any(each.get("type") == "creating" for each in pending),
        expires=max(expiries, default=None),
    )


if __name__ == "__main__":
    sys.exit(main())
