"""Images that a stack pulls, and the digests that pin them.

    python -m infra.images

asks the registries of all images that this version, its Dockerfiles and the settings of the stacks
name for their digests, and writes docker/digests.json. From then on `up` takes these bytes and no
others, even if a tag moves.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pulumi

from cluster import services
from cluster.descriptor import Source
from infra.checkout import ROOT
from trainyard.access import terminal

CONTEXTS = ROOT / "docker"
LOCK = CONTEXTS / "digests.json"
PROJECT = "trainyard"
IN_CONTAINERS = [each for each in services.ALL if each.source is not Source.MODULE]
BUILT = tuple(each.program for each in IN_CONTAINERS if not each.image)  # from docker/<program>
PULLED = {each.program: each.image for each in services.ALL if each.image}
ARGUMENT = re.compile(r"^ARG\s+(\w+)(?:=(\S*))?", re.MULTILINE)
BASE = re.compile(r"^FROM\s+\$\{(\w+)\}", re.MULTILINE)


class LockError(pulumi.RunError):
    """The file of digests cannot be used; the message says why and what to do."""


def bases(program: str, build_args: Mapping[str, str]) -> dict[str, str]:
    """Return the images that a program's is built from, by build argument, pinned where locked.

    Args:
        program: one of BUILT.
        build_args: build arguments of every image that is built.
    """
    text = (CONTEXTS / program / "Dockerfile").read_text()
    arguments = {**dict(ARGUMENT.findall(text)), **build_args}
    return {name: pinned(arguments[name]) for name in BASE.findall(text)}


def sources(
    named: Mapping[str, str], build_args: Mapping[str, str], programs: Iterable[str]
) -> dict[str, str]:
    """Return the images that must be present or pulled, by the setting that names another one.

    Args:
        named: references of images that are not built, by program.
        build_args: build arguments of every image that is built.
        programs: the ones that run.
    """
    found: dict[str, str] = {}
    for program in sorted(programs):
        if program in named:
            found[f"images.{program}"] = named[program]
        else:
            own = bases(program, build_args)
            found |= {f"buildArgs.{name}": reference for name, reference in own.items()}
    return found


def pinned(reference: str) -> str:
    """Return a reference with its digest, where it has none and one is locked."""
    digest = "" if "@" in reference else _locked().get(reference, "")
    return f"{reference}@{digest}" if digest else reference


@cache
def _locked() -> Mapping[str, str]:
    """Return the locked digests by reference.

    Raises:
        LockError: the file is damaged.
    """
    try:
        found: Mapping[str, str] = json.loads(LOCK.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LockError(f"{LOCK} is damaged ({error}): run `make digests`") from None
    return found


def lock() -> int:
    """Ask for the digests of all images and write them down; return the exit status."""
    # Only here: a stack needs neither.
    import httpx  # noqa: PLC0415

    from infra import registry  # noqa: PLC0415

    try:
        wanted = _wanted()
        known = _locked()
    except LockError as error:
        terminal.warn(f"error: {error}")
        return 1
    found = {reference: known[reference] for reference in wanted if reference in known}
    failed = 0
    with httpx.Client(timeout=registry.TIMEOUT_SECONDS, follow_redirects=True) as client:
        for reference in wanted:
            try:
                found[reference] = registry.digest(reference, client)
            except registry.RegistryError as error:
                terminal.warn(f"error: {error}")
                failed += 1
            else:
                terminal.say(f"{reference}@{found[reference]}")
    _write(json.dumps(found, indent=2, sort_keys=True) + "\n")
    terminal.say(f"{len(found)} of {len(wanted)} images have a digest in {LOCK}: commit it")
    return 1 if failed else 0


def _wanted() -> list[str]:
    """Return every reference without a digest, of this version and of the stacks' settings."""
    references = {*sources(PULLED, {}, (*BUILT, *PULLED)).values()}
    for path in sorted(ROOT.glob("Pulumi.*.yaml")):
        named, arguments = _settings(path)
        references |= {*sources({**PULLED, **named}, arguments, (*BUILT, *PULLED)).values()}
    found = {reference.partition("@")[0] for reference in references}
    return sorted(reference for reference in found if ":" in reference.rpartition("/")[2])


def _settings(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the images and the build arguments that a stack's settings name.

    Raises:
        LockError: the file cannot be read.
    """
    import yaml  # noqa: PLC0415

    from trainyard.access import settings_file  # noqa: PLC0415

    try:
        config = (settings_file.load(path.read_text()) or {}).get("config") or {}
        return dict(config.get(f"{PROJECT}:images") or {}), dict(
            config.get(f"{PROJECT}:buildArgs") or {}
        )
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise LockError(f"cannot read {path} ({error}): fix it, then try again") from None


def _write(text: str) -> None:
    # Never a partial file: `up` reads it.
    new = LOCK.with_suffix(".new")
    new.write_text(text)
    new.replace(LOCK)


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m infra.images", description=__doc__).parse_args()
    sys.exit(lock())
