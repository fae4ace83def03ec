"""Users of a service leave before a change restarts or removes it, or the change is refused."""

import os
import threading
from collections.abc import Callable, Sequence

import pulumi

from cluster.provider import FORCE, say
from node.life import ServiceError
from trainyard.access.ssh import SshError

_declares = threading.Event()  # both engines have all providers in one process


def refuse_loss(what: str, ask: Callable[[], Sequence[str]]) -> None:
    """Raise if users would lose work; if that is forced, they are not asked for.

    Raises:
        ServiceError: it names them.
    """
    if not os.environ.get(FORCE) and (users := ask()):
        raise ServiceError(
            f"{what}: {', '.join(users)}. Wait for their end, or stop them (train stop JOB), and "
            "run `up` again; `make up FORCE=1` asks, and ends them"
        )


def leave(
    name: str, users: Sequence[str], drain: Callable[[], object], *, drains: bool, seconds: int
) -> None:
    """Have the users of a service store a checkpoint and leave, within some seconds.

    `drain` waits for it. If it `drains`, they go on elsewhere; otherwise their work would be lost.
    """
    if not drains:
        refuse_loss(
            f"{name} is restarted by this change, and its jobs would be lost", lambda: users
        )
    if users:
        say(f"{name} is drained, for at most {seconds} s: {', '.join(users)}")
        drain()


def note_program() -> None:
    """Note that a program declares resources, as in each `up`; a `destroy` runs none."""
    _declares.set()


def leave_removed(
    name: str, seconds: int, ask: Callable[[], Sequence[str]], drain: Callable[[], object]
) -> None:
    """Have the users of a node that a change removes leave; a `destroy` asks nobody.

    A node that cannot be asked is removed all the same: that may be why it is.
    """
    if not _declares.is_set():
        return
    try:
        leave(name, ask(), drain, drains=True, seconds=seconds)
    except (ServiceError, SshError, pulumi.RunError) as error:
        why = str(error).partition(". ")[0]  # what follows is advice for those that stay
        say(f"{name} is removed without a drain: {why}")
