"""Who may ask the queue for what: the stack's own token, and those of its users."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

ADMIN, TEACHER, USER = "admin", "teacher", "user"
GIVEN = (USER, TEACHER)  # roles of tokens that the queue makes
NAME = re.compile(r"[A-Za-z_][\w.@-]{0,63}", re.ASCII)  # as of a user of quickstart/ray_config.py
MOST = 1000


class UsersError(ValueError):
    """Users are not as they may be; the text says why, and what to do."""


@dataclass(frozen=True)
class Caller:
    """Who sends a request: the stack's own token has no name."""

    name: str = ""
    role: str = ADMIN

    def sees(self, owner: str) -> bool:
        """Whether it may see and stop jobs of a user."""
        return self.role != USER or owner == self.name


STACK, NOBODY = Caller(), Caller(role="")  # the second brings no token: the head tells it so


def digest(token: str) -> str:
    """Return what the queue keeps of a token."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def check(names: object) -> Sequence[str]:
    """Return names that users can have; UsersError for others."""
    if not isinstance(names, list) or not 0 < len(names) <= MOST:
        raise UsersError(f"the names are not a list of 1 to {MOST}: give it so")
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UsersError(
                f"user name {str(name)[:80]!r} is not 1 to 64 letters, digits, '_', '.', '@' or "
                "'-' beginning with a letter or '_': give another one"
            )
    if len({*names}) < len(names):
        raise UsersError("a name is given twice: give each once")
    return names
