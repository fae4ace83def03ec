"""The end of a rented machine: its timer (`ending.py`) is there, and needs nothing else.

Terminating needs the account's API key. It goes to the machine by SSH with the timer, to a file
that only root reads, and is not in any state: the provider gets it like all others. The state has a
fingerprint of it, keyed with the resource's own salt: with another key, or another address of the
API, the timer is told again, because the old one may no longer work.
"""

import hashlib
import hmac
import json
import secrets
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from cluster.provider import Given, Resource, seen
from infra.machines import cloud_init
from infra.machines.host_provider import HostArgs, HostProvider
from infra.places.lambda_cloud import API_KEY
from infra.places.lambda_cloud.account import credentials
from node import ending, source_text
from trainyard.access.ssh import Connection
from trainyard.access.ssh_run import run

CALL_SECONDS = 60.0
FILE = "/etc/trainyard/ttl.json"
# Mode and content of files by path. Whole or not at all: the timer may look at any moment.
PUT = """\
import json, os, sys
files = json.load(sys.stdin)
os.umask(0o077)
for path, (mode, content) in files.items():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w") as file:
        file.write(content)
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)
"""
# The timer's settings, with the fingerprint in place of the key, which stays on the machine.
LOOK = f"""\
import hashlib, hmac, json, os, sys
if os.path.exists("{FILE}") and os.path.exists("{cloud_init.TIMER}"):
    try:
        found = json.load(open("{FILE}"))
        told = (found["apiUrl"] + chr(10) + found["apiKey"]).encode()
        made = hmac.new(sys.stdin.read().encode(), told, hashlib.sha256).hexdigest()
        print(json.dumps([found["end"], found["instanceId"], made]))
    except (ValueError, LookupError, TypeError):
        print("[]")
"""
WRITE, READ = (f"sudo python3 -I -c {shlex.quote(program)}" for program in (PUT, LOOK))
SALT_BYTES = 16
UNUSABLE = ""  # fingerprint of settings that cannot end the machine

Props = dict[str, Any]


class DeadlineArgs(HostArgs):
    """Arguments of a deadline, of the machine as its admin reaches it.

    Attributes:
        at: when it ends, in ISO 8601.
        idle: url, token and last: it also ends when the service at url says so; None without one.
    """

    at: Given[str]
    idle: Given[Mapping[str, Any] | None] = None


class DeadlineProvider(HostProvider[DeadlineArgs]):
    """Tells the machine's timer when to end it, and how."""

    replaces = ("machine",)

    def diff(self, _id: str, olds: Props, news: Props) -> dynamic.DiffResult:
        """Another machine has its own timer; another time or key is told to the same one."""
        found = super().diff(_id, olds, news)
        key, url = credentials(self._config.get(API_KEY))
        found.changes = found.changes or _fingerprint(olds["salt"], key, url) != olds["fingerprint"]
        return found

    def make(self, args: DeadlineArgs) -> tuple[str, Props]:
        key, url = credentials(self._config.get(API_KEY))
        settings = {
            "end": args.at,
            "apiUrl": url,
            "apiKey": key,
            "instanceId": args.machine,
            **({"idle": args.idle} if args.idle else {}),
        }
        files = {
            cloud_init.TIMER: (0o755, source_text(ending.FILE)),
            FILE: (0o600, json.dumps(settings)),
        }
        run(Connection.of(args.host), WRITE, stdin=json.dumps(files), seconds=CALL_SECONDS)
        salt = secrets.token_hex(SALT_BYTES)
        return args.machine, {"salt": salt, "fingerprint": _fingerprint(salt, key, url)}

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Read the timer's settings; those that cannot end the machine show as a difference.

        A machine that is gone has no timer.
        """
        args, printed = DeadlineArgs.of(props), ""
        with self.unless_gone(args.host):
            host = Connection.of(args.host)
            printed = run(host, READ, stdin=props["salt"], seconds=CALL_SECONDS).strip()
        return seen(id_, {**props, **_told(json.loads(printed), args)} if printed else None)

    def delete(self, _id: str, props: Props) -> None:
        """Remove time and key from the machine."""
        host = DeadlineArgs.of(props).host
        with self.unless_gone(host):
            run(Connection.of(host), f"sudo rm -f {FILE}", seconds=CALL_SECONDS)


def _told(found: list[Any], args: DeadlineArgs) -> Props:
    """Return the properties that a timer's settings stand for."""
    match found:
        case [str(at), str(machine), str(fingerprint)] if machine == args.machine:
            return {"at": at, "fingerprint": fingerprint}
        case _:
            return {"fingerprint": UNUSABLE}


def _fingerprint(salt: str, key: str, url: str) -> str:
    return hmac.new(salt.encode(), f"{url}\n{key}".encode(), hashlib.sha256).hexdigest()


class Deadline(Resource[DeadlineArgs], module="lambda", name="Deadline"):
    """The end of a machine.

    Attributes:
        salt: a secret output: a reader of it could try keys; nobody needs to read it.
        fingerprint: of the key and the address of the API that the machine was told.
    """

    _kind = DeadlineProvider
    _secret: ClassVar = ["salt"]
    salt: pulumi.Output[str]
    fingerprint: pulumi.Output[str]


def after(launched_at: str, hours: float) -> str:
    """Return the time so many hours after another, both in ISO 8601."""
    return (datetime.fromisoformat(launched_at) + timedelta(hours=hours)).isoformat()
