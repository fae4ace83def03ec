"""The marks that tell which stack a thing in a cloud's account belongs to.

Instances carry tags. Keys carry a comment, rulesets and file systems a name: they take no tags.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

PROJECT = "trainyard:project"
STACK = "trainyard:stack"
OWNER = "trainyard:owner"
ID = "trainyard:id"  # drawn once for each stack: a stack's name may be used again
BACKEND = "trainyard:backend"  # drawn once for each state backend (infra/operate/backend.py)
NODE = "trainyard:node"  # index of the instance in its stack
SPEC = "trainyard:spec"  # digest of the instance's launch request
END = "trainyard:end"  # ISO 8601; as set at the launch, because no tag changes later

NAME_LIMIT = 64
_ID = "([0-9a-f]{8})"
_NAME = re.compile(f"trainyard-(?:[A-Za-z0-9-]*-)?{_ID}-on-{_ID}(?:-[a-z0-9-]+)?")
_COMMENT = re.compile(rf"trainyard:{_ID}@{_ID}( generated)?(?:\s|$)")

Text = TypeVar("Text")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The mark of a thing that takes no tags.

    Attributes:
        stack: id of the stack, "" when it is not ours.
        backend: id of the state backend.
        generated: of a key: the stack made the pair too, not only its entry in the account.
    """

    stack: str = ""
    backend: str = ""
    generated: bool = False


def tags(*, project: str, stack: str, owner: str, backend: Text) -> dict[str, str | Text]:
    """Return the tags that all instances of a stack share; `backend` may be an output."""
    return {PROJECT: project, STACK: stack, OWNER: owner, BACKEND: backend}


def fields(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a Holding that the tags of an instance have."""
    names = {"owner": OWNER, "stack": STACK, "mark": ID, "backend": BACKEND, "end": END}
    return {field: tags.get(tag, "") for field, tag in names.items()}


def resource_name(title: str, mark: Mark, suffix: str) -> str:
    """Return the name of a thing that takes no tags; the ids survive the cut to 64 characters."""
    tail = f"-{mark.stack}-on-{mark.backend}-{suffix}"
    head = re.sub(r"[^A-Za-z0-9]+", "-", f"trainyard-{title}")
    return head[: NAME_LIMIT - len(tail)].rstrip("-") + tail


def mark_in_name(name: str) -> Mark:
    """Return the mark in the name of a thing."""
    match = _NAME.fullmatch(name)
    return Mark(stack=match[1], backend=match[2]) if match else Mark()


def key_comment(mark: Mark) -> str:
    """Return the comment of a public key that a stack puts into the account."""
    return f"trainyard:{mark.stack}@{mark.backend}" + " generated" * mark.generated


def mark_in_key(public_key: str) -> Mark:
    """Return the mark in a public key's comment."""
    match = _COMMENT.search(public_key)
    return Mark(stack=match[1], backend=match[2], generated=bool(match[3])) if match else Mark()


def is_of(machine_tags: Mapping[str, str], stack_id: str) -> bool:
    """Return whether these are tags of the stack."""
    return bool(stack_id) and machine_tags.get(ID) == stack_id
