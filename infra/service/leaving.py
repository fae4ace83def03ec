"""Users of a service leave before a change restarts it, or the change is refused."""

import os
from collections.abc import Callable, Sequence

from cluster.provider import FORCE, say
from node.life import ServiceError


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
