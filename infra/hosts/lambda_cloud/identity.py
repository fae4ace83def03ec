"""How a thing in the account says whose it is.

Instances carry tags. Keys carry a comment, rulesets and file systems a name: they take no tags.
"""

import getpass
import re
import socket
from collections.abc import Mapping

PROJECT = "trainyard:project"
STACK = "trainyard:stack"
OWNER = "trainyard:owner"
ID = "trainyard:id"  # drawn once for each stack: a stack's name may be given again
NODE = "trainyard:node"  # index of the instance in its stack
SPEC = "trainyard:spec"  # digest of what the instance was launched with

NAME_LIMIT = 64
TAG_LIMIT = 128
_NAME = re.compile(r"trainyard-(?:[A-Za-z0-9-]*-)?([0-9a-f]{8})(?:-[a-z0-9-]+)?")
_COMMENT = re.compile(r"trainyard:([0-9a-f]{8})(?:\s|$)")


def owner(setting: str = "") -> str:
    """Return who runs a stack, fit for a tag.

    Args:
        setting: the stack's setting; "" for user and machine.
    """
    text = setting or f"{getpass.getuser()}@{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9@._-]+", "-", text)[:TAG_LIMIT]


def tags(*, project: str, stack: str, owner: str) -> dict[str, str]:
    """Return the tags that all instances of a stack share."""
    return {PROJECT: project, STACK: stack, OWNER: owner}


def resource_name(*, project: str, stack: str, stack_id: str, suffix: str = "") -> str:
    """Return the name of a thing that takes no tags; the id survives the cut to 64 characters."""
    tail = f"-{stack_id}-{suffix}" if suffix else f"-{stack_id}"
    head = re.sub(r"[^A-Za-z0-9]+", "-", f"trainyard-{project}-{stack}")
    return head[: NAME_LIMIT - len(tail)].rstrip("-") + tail


def id_in_name(name: str) -> str:
    """Return the stack id in the name of a thing of ours, "" when it is not ours."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match else ""


def key_comment(stack_id: str, *, generated: bool) -> str:
    """Return the comment of a public key that a stack puts into the account.

    Args:
        stack_id: id of the stack.
        generated: the stack made the key pair too, not only its entry in the account.
    """
    return f"trainyard:{stack_id} generated" if generated else f"trainyard:{stack_id}"


def id_in_key(public_key: str) -> str:
    """Return the stack id in a public key's comment, "" when no stack put it there."""
    match = _COMMENT.search(public_key)
    return match.group(1) if match else ""


def is_of(machine_tags: Mapping[str, str], stack_id: str) -> bool:
    """Return whether these are tags of the stack."""
    return bool(stack_id) and machine_tags.get(ID) == stack_id
