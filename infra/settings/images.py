"""Images that a stack pulls, and the digests that pin them.

`scripts.registry` writes the digests to docker/digests.json. From then on `up` takes these bytes
and no others, even if a tag moves.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache

import pulumi

from cluster import services
from cluster.descriptor import Source
from infra.operate.checkout import ROOT

CONTEXTS = ROOT / "docker"
LOCK = CONTEXTS / "digests.json"
IN_CONTAINERS = [each for each in services.ALL if each.source is not Source.MODULE]
# From docker/<program>; the notebook's image is the page's too.
BUILT = tuple(dict.fromkeys(each.program for each in IN_CONTAINERS if not each.image))
PULLED = {each.program: each.image for each in services.ALL if each.image}
ARGUMENT = re.compile(r"^ARG\s+(\w+)(?:=(\S*))?", re.MULTILINE)
BASE = re.compile(r"^FROM\s+\$\{(\w+)\}", re.MULTILINE)


class LockError(pulumi.RunError):
    """The file of digests cannot be used; the message says why and what to do."""


def bases(program: str, build_args: Mapping[str, str]) -> dict[str, str]:
    """Return the images that one of BUILT is made of, by build argument, pinned where locked.

    `build_args` are those of every image that is built.
    """
    text = (CONTEXTS / program / "Dockerfile").read_text()
    arguments = {**dict(ARGUMENT.findall(text)), **build_args}
    return {name: pinned(arguments[name]) for name in BASE.findall(text)}


def sources(
    named: Mapping[str, str], build_args: Mapping[str, str], programs: Iterable[str]
) -> dict[str, str]:
    """Return the images that must be present or pulled, by the setting that names another one.

    `named` are those that are not built, by program; `build_args` are of every one that is.
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
    digest = "" if "@" in reference else locked().get(reference, "")
    return f"{reference}@{digest}" if digest else reference


@cache
def locked() -> Mapping[str, str]:
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
