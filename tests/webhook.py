"""A webhook on this machine that keeps all posts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests import web


@dataclass
class Webhook:
    """Takes JSON.

    Attributes:
        url: of it.
        posted: the posts.
    """

    url: str = ""
    posted: list[Any] = field(default_factory=list)

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that Alertmanager posted."""
        return [alert for post in list(self.posted) for alert in post["alerts"]]


@contextmanager
def receiving() -> Iterator[Webhook]:
    hook = Webhook()

    def answer(asked: web.Request) -> web.Said:
        hook.posted.append(json.loads(asked.body))
        return 200, b""

    with web.serving(answer) as server:
        hook.url = f"{server.url}/alerts"
        yield hook
