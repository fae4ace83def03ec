"""`make rotate SECRET=name`: makes the next `up` draw a new value for one secret of a stack.

It counts the rotation in the stack's settings (cluster/secret.py), where both engines, a preview
and a review see it. If `up` fails, run it again. Without a name it lists the stack's secrets. It
ends with 1 if jobs run that would be lost.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from cluster import ray_node, secret
from infra.operate import arguments, backend, states
from trainyard.access import settings_file, terminal

SECRET_TYPE = "cluster:Secret"  # noqa: S105 (a resource's type)
GUARD = ":RecreateGuard"  # of all pods of Ray
SETTING = "rotated"


@dataclass(frozen=True, kw_only=True)
class SecretState:
    """A secret as the state has it.

    Attributes:
        by_head: whether a new value restarts Ray's head.
    """

    times: int
    by_head: bool


def rotatable_secrets(deployment: Mapping[str, Any]) -> dict[str, SecretState]:
    """Return the secrets of a stack that can be rotated, by name."""
    resources = [each for each in deployment.get("resources") or [] if not each.get("delete")]
    found: dict[str, SecretState] = {}
    for drawn in resources:
        name = secret.rotated_as(_name(drawn["urn"]))
        if not drawn["type"].endswith(SECRET_TYPE) or name not in secret.ROTATABLE:
            continue
        times = int(drawn.get("outputs", {}).get("generation") or 0)
        by_head = any(_is_head(each) and _takes(each, drawn["urn"]) for each in resources)
        one = found.get(name, SecretState(times=times, by_head=False))
        # If an `up` ended early, one key of a pair may be new and the other not.
        found[name] = SecretState(times=min(times, one.times), by_head=by_head or one.by_head)
    return dict(sorted(found.items()))


def rotate(folder: Path, stack: str, name: str, *, force: Sequence[str]) -> None:
    """Count a rotation of a secret in the settings, so that `up` draws a new value.

    `force` are options for `trainyard.client.losses` where jobs would be lost.

    Raises:
        pulumi.RunError: the secret does not exist, jobs run, the state cannot be read, or the
            settings cannot be written. Nothing was rotated.
    """
    known = _known(folder, stack)
    if name not in known:
        raise pulumi.RunError(
            f"stack {stack!r} has no secret {name!r}; it has: {', '.join(known)}"
            if known
            else f"stack {stack!r} is not up: run `make up STACK={stack}` first"
        )
    if known[name].by_head:
        asked = ["-m", "trainyard.client.losses", "-s", stack, *force]
        if subprocess.run([sys.executable, "-P", *asked], cwd=folder, check=False).returncode:
            raise pulumi.RunError(f"{name} restarts Ray's head. Nothing was changed")
    # A rotation that was counted and not yet applied is not counted twice.
    times = max(_written(folder, stack, name), known[name].times + 1)
    setting = ["config", "set", "--path", f"{SETTING}.{name}", str(times), "-s", stack]
    command = [sys.executable, "-P", "-m", "engine", "-C", str(folder), *setting]
    if subprocess.run(command, cwd=folder, check=False).returncode:
        raise pulumi.RunError(f"Pulumi.{stack}.yaml is unchanged: set {SETTING}.{name} to {times}")
    terminal.say(f"Pulumi.{stack}.yaml: {SETTING}.{name} is {times}. Commit it, if others use it")


def _known(folder: Path, stack: str) -> dict[str, SecretState]:
    project = backend.project(folder)["name"]
    return rotatable_secrets(states.deployment(folder, backend.find(folder), project, stack))


def _written(folder: Path, stack: str, name: str) -> int:
    """Return how often the settings say that a secret was rotated (default: 0)."""
    try:
        config = settings_file.read(folder / f"Pulumi.{stack}.yaml")["config"]
        project = backend.project(folder)["name"]
        return int((config.get(f"{project}:{SETTING}") or config[SETTING])[name])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return 0  # if the file is damaged, the engine says so


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _is_head(entry: Mapping[str, Any]) -> bool:
    return ray_node.HEAD in _name(entry["urn"]) or entry["type"].endswith(GUARD)


def _takes(entry: Mapping[str, Any], urn: str) -> bool:
    return any(urn in sources for sources in entry.get("propertyDependencies", {}).values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = arguments.parser("infra.operate.rotate", __doc__, stack="")
    parser.add_argument(
        "--secret", default="", help="name of the secret; without one all are listed"
    )
    parser.add_argument("--force", action="store_true", help="ask, and let jobs end")
    parser.add_argument("--yes", action="store_true", help="let jobs end without a question")
    options = parser.parse_args(argv)
    folder = options.cwd.resolve()
    force = ["--yes"] if options.yes else [] if options.force else ["--refuse"]

    def act() -> int:
        if options.secret:
            rotate(folder, options.stack, options.secret, force=force)
            return 0
        for name, each in _known(folder, options.stack).items():
            what = "; restarts Ray's nodes, not while jobs run" if each.by_head else ""
            terminal.say(f"{name}: rotated {each.times} times{what}", options.stack)
        return 0

    return arguments.run(act, options.stack)


if __name__ == "__main__":
    sys.exit(main())
