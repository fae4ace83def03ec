"""The end of a rented machine: kept on the machine, so that it comes when nothing else runs.

Terminating takes the account's API key. It goes to the machine by SSH, to a file that only root
reads, and is in no state: the provider takes it from where all others do.
"""

import json
from datetime import datetime, timedelta
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.ssh import Connection, run
from infra.hosts.lambda_cloud.account import credentials
from infra.hosts.presence import HostProvider
from infra.provided import difference

CALL_SECONDS = 60.0
FILE = "/etc/trainyard/ttl.json"
# In one step: the timer may look at any moment.
WRITE = (
    "sudo install -d -m 700 /etc/trainyard && "
    f"sudo sh -c 'umask 077; cat > {FILE}.new && mv {FILE}.new {FILE}'"
)


class DeadlineProvider(HostProvider):
    """Tells the machine's timer when to end it, and how."""

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Another machine has a timer of its own; another time is told to the same one."""
        return difference(olds, news, replaces=["machine"])

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Tell it."""
        self._tell(props)
        return dynamic.CreateResult(props["machine"], props)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Tell it anew."""
        self._tell(news)
        return dynamic.UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Take time and key away from it."""
        with self.unless_gone(props):
            run(Connection.of(props["host"]), f"sudo rm -f {FILE}", seconds=CALL_SECONDS)

    def _tell(self, props: dict[str, Any]) -> None:
        key, url = credentials(self._key)
        settings = {
            "deadline": int(datetime.fromisoformat(props["at"]).timestamp()),
            "apiUrl": url,
            "apiKey": key,
            "instanceId": props["machine"],
        }
        run(Connection.of(props["host"]), WRITE, stdin=json.dumps(settings), seconds=CALL_SECONDS)


class Deadline(dynamic.Resource, module="lambda", name="Deadline"):
    """The end of a machine."""

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare an end from host (as its admin), machine (its id) and at (ISO 8601)."""
        super().__init__(DeadlineProvider(), name, props, opts)


def after(launched_at: str, hours: float) -> str:
    """Return the time so many hours after another, both in ISO 8601."""
    return (datetime.fromisoformat(launched_at) + timedelta(hours=hours)).isoformat()
