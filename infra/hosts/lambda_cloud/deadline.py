"""The end of a rented machine: kept on the machine, so that it comes when nothing else runs.

Terminating takes the account's API key. It goes to the machine by SSH, to a file that only root
reads, and is in no state: the provider takes it from where all others do. The state has a
fingerprint of it, keyed with a salt of the resource's own: with another key, or another address of
the API, the timer is told anew, for the old one may end nothing any more.
"""

import hashlib
import hmac
import json
import secrets
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
from pulumi import dynamic

from access.ssh import Connection
from cluster.ssh import run
from infra.hosts.lambda_cloud.account import credentials
from infra.hosts.lambda_cloud.settings import API_KEY
from infra.hosts.presence import HostProvider
from infra.provided import difference

CALL_SECONDS = 60.0
FILE = "/etc/trainyard/ttl.json"
# In one step: the timer may look at any moment.
WRITE = (
    "sudo install -d -m 700 /etc/trainyard && "
    f"sudo sh -c 'umask 077; cat > {FILE}.new && mv {FILE}.new {FILE}'"
)
# What the timer has, with the fingerprint in place of the key, which does not leave the machine.
LOOK = f"""\
import hashlib, hmac, json, os, sys
if os.path.exists("{FILE}"):
    try:
        found = json.load(open("{FILE}"))
        told = (found["apiUrl"] + chr(10) + found["apiKey"]).encode()
        made = hmac.new(sys.stdin.read().encode(), told, hashlib.sha256).hexdigest()
        print(json.dumps([found["deadline"], found["instanceId"], made]))
    except (ValueError, LookupError, TypeError):
        print("[]")
"""
READ = f"sudo python3 -I -c {shlex.quote(LOOK)}"
SALT_BYTES = 16
UNUSABLE = ""  # fingerprint of what ends nothing


Props = dict[str, Any]


class DeadlineProvider(HostProvider):
    """Tells the machine's timer when to end it, and how."""

    def diff(self, _id: str, olds: Props, news: Props) -> dynamic.DiffResult:
        """Another machine has a timer of its own; another time or key is told to the same one."""
        found = difference(olds, news, replaces=["machine"])
        if olds.get("salt") is None or _fingerprint(olds["salt"], *self._account()) != olds.get(
            "fingerprint"
        ):
            found.changes = True
        return found

    def create(self, props: Props) -> dynamic.CreateResult:
        """Tell it."""
        return dynamic.CreateResult(props["machine"], self._tell(props))

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Read what the timer has; what it cannot end the machine with is shown as a difference.

        A machine that is gone has no timer.
        """
        printed = ""
        with self.unless_gone(props):
            printed = run(
                Connection.of(props["host"]),
                READ,
                stdin=props.get("salt") or "",
                seconds=CALL_SECONDS,
            )
        if not printed.strip():
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, {**props, **_told(json.loads(printed), props)})

    def update(self, _id: str, _olds: Props, news: Props) -> dynamic.UpdateResult:
        """Tell it anew."""
        return dynamic.UpdateResult(self._tell(news))

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Take time and key away from it."""
        with self.unless_gone(props):
            run(Connection.of(props["host"]), f"sudo rm -f {FILE}", seconds=CALL_SECONDS)

    def _account(self) -> tuple[str, str]:
        key, url = credentials(self._config.get(API_KEY))
        return key, url.rstrip("/")  # the machine appends a path

    def _tell(self, props: Props) -> Props:
        """Tell the timer; return the outputs."""
        key, url = self._account()
        settings = {
            "deadline": _seconds(props["at"]),
            "apiUrl": url,
            "apiKey": key,
            "instanceId": props["machine"],
            **({"idle": props["idle"]} if "idle" in props else {}),
        }
        run(Connection.of(props["host"]), WRITE, stdin=json.dumps(settings), seconds=CALL_SECONDS)
        salt = secrets.token_hex(SALT_BYTES)
        return {**props, "salt": salt, "fingerprint": _fingerprint(salt, key, url)}


def _told(found: list[Any], props: Props) -> Props:
    """Return the properties that what a timer has stands for."""
    match found:
        case [int(deadline), str(machine), str(fingerprint)] if machine == props["machine"]:
            if deadline == _seconds(props["at"]):
                return {"fingerprint": fingerprint}
            at = datetime.fromtimestamp(deadline, UTC).isoformat()
            return {"at": at, "fingerprint": fingerprint}
        case _:
            return {"fingerprint": UNUSABLE}


def _fingerprint(salt: str, key: str, url: str) -> str:
    return hmac.new(salt.encode(), f"{url}\n{key}".encode(), hashlib.sha256).hexdigest()


def _seconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp())


class Deadline(dynamic.Resource, module="lambda", name="Deadline"):
    """The end of a machine."""

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare an end from host (as its admin), machine (its id) and at (ISO 8601).

        With idle (url, token, last) the machine also ends when whoever is asked there says so.
        """
        # Whoever reads the salt could try keys; nobody has to.
        marked = pulumi.ResourceOptions(additional_secret_outputs=["salt"])
        super().__init__(
            DeadlineProvider(),
            name,
            {"salt": None, "fingerprint": None, **props},
            pulumi.ResourceOptions.merge(opts, marked),
        )


def after(launched_at: str, hours: float) -> str:
    """Return the time so many hours after another, both in ISO 8601."""
    return (datetime.fromisoformat(launched_at) + timedelta(hours=hours)).isoformat()
