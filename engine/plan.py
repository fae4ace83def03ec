"""Plans: a preview's steps, in a file, so that an `up` does only them.

A plan holds for the files of one commit, one set of settings and one state. Secrets in it are
encrypted as in the state, and a seal that needs the passphrase reveals a torn or changed file.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from engine import files
from engine.crypto import Crypter
from engine.errors import EngineError
from engine.project import Project, StackSettings
from engine.state import Backend
from engine.values import UNKNOWN, Properties, decrypt, encrypt, reveal, secret
from trainyard.access.repository import environment

Step = tuple[str, str, Properties]  # operation, URN and inputs
Binding = dict[str, Any]  # what a plan is bound to

VERSION = 1
# An operation may turn out smaller than planned, if a value was not known yet.
LESS = {"replace": ("replace", "update"), "update": ("update",)}
# Parts of a binding that have to be the same, and the part that names each in messages.
BOUND = {"stack": "stack", "tree": "commit", "settings": "", "state": ""}
AGAIN = "look at a new one: `train preview --plan FILE`"


def binding(project: Project, stack: str, settings: StackSettings, backend: Backend) -> Binding:
    """The stack, files, settings and state that an operation works on now."""
    state = backend.stack_file(project.name, stack)
    config = json.dumps([settings.config, settings.secret_keys], sort_keys=True)
    return {
        "stack": f"{project.name}/{stack}",
        **_sources(project.root),
        "settings": secret(_digest(config.encode())),  # a digest of few words could be guessed
        "state": _digest(state.read_bytes()) if state.exists() else "",
    }


def write(path: Path, steps: Iterable[Step], here: Binding, crypter: Crypter) -> None:
    """Write a plan.

    Raises:
        EngineError: the file cannot be written.
    """
    body = encrypt({"version": VERSION, **here, "steps": list(map(list, steps))}, crypter.encrypt)
    document = {"plan": body, "salt": crypter.salt, "seal": crypter.encrypt(_digest_of(body))}
    path = path.resolve()  # of a link
    try:
        files.replace(path, json.dumps(document, indent=2).encode(), Path(f"{path}.new"))
    except OSError as error:
        raise EngineError(f"the plan {path} cannot be written ({error.strerror})") from None


def read_plan(path: Path, here: Binding, crypter: Callable[[str], Crypter]) -> list[Step]:
    """The steps of a plan that holds in the current `binding`; `crypter` makes one of a salt.

    Raises:
        EngineError: it cannot be read, or was made for something else.
    """
    try:
        document = json.loads(path.read_bytes())
        body, seal = document["plan"], document["seal"]
        cipher = crypter(document["salt"])
        if cipher.decrypt(seal) != _digest_of(body) or body["version"] != VERSION:
            raise ValueError
    except OSError as error:
        raise EngineError(f"the plan {path} cannot be read ({error.strerror})") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, EngineError):
        raise EngineError(
            f"{path} is not a whole plan of this engine and passphrase: it was cut off, changed, "
            f"or made by the pulumi CLI; {AGAIN}"
        ) from None
    plan = decrypt(body, cipher.decrypt)
    for what, shown in BOUND.items():
        if reveal(plan[what]) != reveal(here[what]):
            both = f": {plan[shown]}, and here {here[shown]}" if shown else ""
            raise EngineError(
                f"the plan {path} was made for another {shown or what}{both}; {AGAIN}"
            )
    return [(operation, urn, inputs) for operation, urn, inputs in plan["steps"]]


def refuse(planned: Iterable[Step], steps: Iterable[Step]) -> None:
    """Raise for steps that are not planned.

    Raises:
        EngineError: names all of them.
    """
    held: dict[str, list[Step]] = {}
    for step in planned:
        held.setdefault(step[1], []).append(step)
    if faults := [fault for step in steps if (fault := _fault(held.get(step[1], []), step))]:
        raise EngineError(f"the plan does not hold: {'; '.join(faults)}; {AGAIN}")


def _fault(planned: list[Step], step: Step) -> str:
    """The unplanned part of a step, "" for none."""
    operation, urn, inputs = step
    what = f"{operation} of {urn.rpartition('::')[2]}"
    for as_planned, _, expected in planned:
        if operation in LESS.get(as_planned, (as_planned,)):
            names = sorted(
                name
                for name in expected.keys() | inputs.keys()
                if not _is_as_planned(reveal(expected.get(name)), reveal(inputs.get(name)))
            )
            return f"{what} with another {', '.join(names)}" if names else ""
    return what


def _is_as_planned(expected: Any, value: Any) -> bool:
    if expected == UNKNOWN:
        return True
    if isinstance(expected, dict) and isinstance(value, dict):
        return expected.keys() == value.keys() and all(
            _is_as_planned(item, value[key]) for key, item in expected.items()
        )
    if isinstance(expected, list) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_is_as_planned, expected, value))
    return bool(expected == value)


def _sources(folder: Path) -> dict[str, str]:
    """The commit of a checkout and its tree, with a digest of what differs; "" outside of one.

    A plan is bound to the tree: a merge makes another commit of the reviewed files.
    """

    def git(*arguments: str) -> bytes:
        command = ["git", "--no-optional-locks", *arguments]
        return subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, check=True
        ).stdout

    if not any((each / ".git").exists() for each in (folder, *folder.parents)):
        return {"commit": "", "tree": ""}
    try:
        commit, tree = git("rev-parse", "HEAD", "HEAD^{tree}").decode().split()
        changes = git("diff", "HEAD")
        # Modules that are not added to git yet run, too.
        new = git("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
        for name in new.split(b"\0"):
            if name:
                content = (folder / os.fsdecode(name)).read_bytes()
                changes += name + b"\0" + _digest(content).encode()
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or str(error).encode()
        raise EngineError(
            f"a plan is bound to the commit, and git does not tell it: {why.decode().strip()}"
        ) from None
    more = f" with changes {_digest(changes)[:8]}" if changes else ""
    return {"commit": commit + more, "tree": tree + more}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(body: Any) -> str:
    return _digest(json.dumps(body, sort_keys=True).encode())
