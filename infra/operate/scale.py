"""`python -m infra.operate.scale`: launches and ends machines of an elastic group, as Ray requests.

Ray's autoscaler on the head writes down which machines it requests. This reads the request every
few seconds, through SSH, and runs `up` when it differs from the existing machines. So each machine
is a resource of the stack like any other, and the account's key is here, not on the head.

It stores nothing: after a kill, it begins with an `up` that finishes the last one.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from cluster.provider import IGNORE_HEALTH
from infra.machines import sources
from infra.operate import arguments
from infra.operate.requested import AS_IT_IS, VARIABLE
from trainyard.access import outputs, terminal
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import CommandError, run

POLL_SECONDS = 5.0
CALL_SECONDS = 60.0
AGAIN_SECONDS, AGAIN_MOST_SECONDS = 10.0, 300.0  # between attempts that fail
TELL_SECONDS = 60.0  # between two lines about a running `up`
LAST_LINES = 12
MOST_CHARACTERS = 64 * 1024  # of an answer of the head's machine; jobs may write there
NAMED, LONGEST_NAME = 3, 63  # unknown names in a message, and their length in characters
# Files of node/node_provider.py, which imports all of Ray.
REQUESTED, LAUNCHED = "requested.json", "launched.json"
LOCKED = "locked by"  # each engine says so of a stack that another operation holds
# Asks the idle watch on the head's machine (node/idle_watch.py).
# The answer names all activity. The machines' timers have the same bound (ending.py).
ASK = """\
import json, sys, urllib.request
asked = json.load(sys.stdin)
head = {"Authorization": "Bearer " + asked["token"]}
open_ = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
with open_(urllib.request.Request(asked["url"] + "/verdict", headers=head), timeout=20) as answer:
    print(json.dumps(json.loads(answer.read(4 * 2**20))["end"] is True))
"""


class RequestError(Exception):
    """The request is unknown now, but may be known later."""


@dataclass(frozen=True, kw_only=True)
class GroupOutputs:
    """The elastic group, as the stack's outputs have it.

    Attributes:
        prices: $/h of each machine, by the name of its worker.
        launched: names of the machines that the last `up` declared.
        folder: with the files of the request, on the head's machine.
        idle: `url` and `token` of the watch that says whether the machines end because the cluster
            is idle; None without one.
    """

    prices: Mapping[str, float]
    launched: frozenset[str]
    folder: str
    connection: Connection
    idle: Mapping[str, str] | None = None

    @classmethod
    def of(cls, known: Mapping[str, Any], stack: str) -> "GroupOutputs":
        """Return the group of a stack with these outputs.

        Raises:
            pulumi.RunError: it has none.
        """
        if not known:
            raise pulumi.RunError(f"stack {stack!r} is not up: run `make up STACK={stack}` first")
        if not known.get(outputs.REQUESTS_FOLDER):
            clouds = " or ".join(source.setting for source in sources.SOURCES if source.cloud)
            raise pulumi.RunError(
                f"no group of stack {stack!r} grows on rented machines: set nodeGroups with max "
                f"next to {clouds}, then run `make up STACK={stack}`"
            )
        nodes = [node for node in known[outputs.NODES] if node["onDemand"]]
        return cls(
            prices={node["name"]: float(node["hourlyCost"]) for node in nodes},
            launched=frozenset(node["name"] for node in nodes if node["launched"]),
            folder=known[outputs.REQUESTS_FOLDER],
            connection=Connection.of(known[outputs.SSH]),
            idle={"url": url, "token": known[outputs.IDLE_END_TOKEN]}
            if (url := known.get(outputs.IDLE_END_URL))
            else None,
        )

    def requested(self) -> list[str]:
        """Return the names of the machines that Ray requests.

        Raises:
            RequestError: the head's machine does not say.
        """
        try:
            text = self._run(f"cat {shlex.quote(f'{self.folder}/{REQUESTED}')}")
            requested = [str(name) for name in json.loads(text)]
        except CommandError:
            raise RequestError("the head has not written down a request yet") from None
        except SshError as error:
            raise RequestError(str(error)) from None
        except (ValueError, TypeError, RecursionError):  # jobs may write it
            raise RequestError(f"{REQUESTED} on {self.connection.name} holds no request") from None
        if unknown := sorted({*requested} - {*self.prices}):
            # Somebody has changed the group; the outputs are read again.
            named = ", ".join(terminal.clean(name[:LONGEST_NAME]) for name in unknown[:NAMED])
            more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
            raise RequestError(f"{named}{more}: in no group that the outputs name")
        return requested

    def tell(self, launched: Collection[str]) -> None:
        """Tell Ray which machines are launched: it does not request them again while they end.

        Raises:
            RequestError: the head's machine does not answer.
        """
        path = shlex.quote(f"{self.folder}/{LAUNCHED}")
        try:
            self._run(f"cat > {path}.new && mv {path}.new {path}", json.dumps(sorted(launched)))
        except SshError as error:
            raise RequestError(str(error)) from None

    def check_lives(self) -> None:
        """Check that the cluster does not end itself: new machines would outlive it.

        Raises:
            RequestError: it ends itself.
        """
        if self.idle is None:
            return
        try:
            said = self._run(f"python3 -c {shlex.quote(ASK)}", json.dumps(dict(self.idle)))
        except SshError:
            return  # without the watch nothing ends the machines
        if said.strip() == "true":
            raise RequestError("the cluster is idle, and its machines end themselves")

    def costs(self, names: Collection[str]) -> str:
        price = sum(self.prices[name] for name in names)
        return f"{len(names)} of at most {len(self.prices)} machines, {price:.2f} $/h"

    def _run(self, command: str, stdin: str = "") -> str:
        return run(
            self.connection, command, stdin=stdin, seconds=CALL_SECONDS, most=MOST_CHARACTERS
        )


def steps(
    launched: Collection[str],
    requested: Collection[str],
    *,
    whole: bool = True,
    broken: bool = False,
) -> list[list[str]]:
    """Return the machines that remain after each `up`, in order, until the request is met.

    Ends go first: if a launch finds no room, machines without a request would stay, billed.
    `launched` are those since the last `up` that ended well, and `whole` says that none began
    since. `broken`: an `up` failed that launched nothing, so one of its machines cannot be
    finished, and ends too.
    """
    kept = {*launched} & {*requested}
    targets = [kept] if kept != {*launched} or broken else []
    targets += [{*requested}] if kept != {*requested} or not (whole or targets) else []
    return [sorted(target) for target in targets]


class Scaler:
    """Meets the requests of one stack of a project."""

    def __init__(self, folder: Path, stack: str) -> None:
        self._folder, self._stack = folder, stack
        self._group: GroupOutputs | None = None
        self._whole = False  # whether the last `up` ended well
        self._broken = False  # whether not even one that launched nothing did
        self._told: frozenset[str] | None = None  # machines that Ray was told of
        self._said = ""
        self._stopping = threading.Event()
        self._child: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """Begin nothing more; let the running `up` end its steps, or stop it on a second call."""
        self._stopping.set()
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)

    def once(self) -> int:
        return int(not self.meet())

    def run(self) -> int:
        """Meet requests until `stop`; return 0.

        Raises:
            pulumi.RunError: the stack has no elastic group, or is gone.
        """
        again = AGAIN_SECONDS
        while not self._stopping.is_set():
            if self.meet():
                again, pause = AGAIN_SECONDS, POLL_SECONDS
            else:
                again, pause = min(2 * again, AGAIN_MOST_SECONDS), again
            self._stopping.wait(pause)
        self._say("stopped")
        return 0

    def meet(self) -> bool:
        """Meet the current request; return whether it is met.

        Raises:
            pulumi.RunError: the stack has no elastic group, or is gone.
        """
        try:
            if self._group is None:
                self._group = GroupOutputs.of(self._outputs(), self._stack)
                self._told = None  # the head may be another one, which knows nothing
            return self._meet(self._group)
        except RequestError as error:
            self._say(f"nothing is changed: {error}")
            # The head may have come back with another address.
            self._group = None
            return False

    def _meet(self, group: GroupOutputs) -> bool:
        requested = group.requested()
        for target in steps(group.launched, requested, whole=self._whole, broken=self._broken):
            new, unneeded = {*target} - group.launched, group.launched - {*target}
            if new:
                group.check_lives()
            if new or unneeded:
                self._tell(group, group.launched | new)
                parts = [f"launching {', '.join(sorted(new))}"] if new else []
                parts += [f"ending {', '.join(sorted(unneeded))}"] if unneeded else []
                self._say(f"{' and '.join(parts)}: then {group.costs(target)}")
            else:
                self._say("looking whether all is as it was left")
            self._whole, self._group = False, None
            if not self._up(target):
                return False
            group = self._group = GroupOutputs.of(self._outputs(), self._stack)
            self._tell(group, group.launched)
            self._whole, self._broken = True, False
        # Ray may request again machines that could not be launched.
        self._tell(group, group.launched)
        self._say(f"as requested: {group.costs(group.launched)}")
        return True

    def _tell(self, group: GroupOutputs, launched: frozenset[str]) -> None:
        if launched != self._told:
            group.tell(launched)
            self._told = launched

    def _up(self, target: Sequence[str]) -> bool:
        """Run `up`; if it fails because of one machine, finish the others."""
        last = self._engine("up", os.environ | {VARIABLE: ",".join(target), IGNORE_HEALTH: "1"})
        if last is None or self._stopping.is_set():
            return last is None
        self._say("`up` failed:\n" + "\n".join(f"  {line}" for line in last))
        if not any(LOCKED in line for line in last):
            self._say("finishing what was launched; the rest is tried again later")
            kept = os.environ | {VARIABLE: AS_IT_IS, IGNORE_HEALTH: "1"}
            # A machine that came too late has been ended, and is still in the state.
            commands = ("refresh", "up")
            self._whole = all(self._engine(each, kept) is None for each in commands)
            self._broken = not self._whole
        return False

    def _engine(self, command: str, environment: Mapping[str, str]) -> list[str] | None:
        """Run a command of the engine to its end; return its last lines if it failed."""
        if self._stopping.is_set():
            return []
        begun = told = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "engine.launch", command, "-s", self._stack],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C comes through `stop`, once
        ) as child:
            self._child = child
            lines: deque[str] = deque(maxlen=LAST_LINES)
            output = child.stdout or ()
            reader = threading.Thread(
                target=lambda: lines.extend(line.rstrip() for line in output if line.strip())
            )
            reader.start()
            while reader.is_alive():
                reader.join(1)
                if time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    self._say(
                        f"`{command}` runs for {told - begun:.0f} s: {lines[-1] if lines else ''}"
                    )
        self._child = None
        if child.returncode == 0:
            self._say(f"`{command}` ended well after {time.monotonic() - begun:.0f} s")
            return None
        return list(lines)

    def _outputs(self) -> dict[str, Any]:
        """Read the outputs of the stack, {} if it does not exist."""
        arguments = ["output", "--json", "--show-secrets", "-s", self._stack]
        commands = [[sys.executable, "-P", "-m", "engine", "-C", str(self._folder), *arguments]]
        if shutil.which("pulumi"):
            commands.append(["pulumi", "stack", *arguments, "--non-interactive"])
        said = ""
        for command in commands:
            done = subprocess.run(
                command, cwd=self._folder, capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
            said = said or done.stderr.strip()
        if "no stack named" in said:
            return {}
        raise RequestError(f"the outputs of stack {self._stack!r} cannot be read: {said}")

    def _say(self, text: str) -> None:
        if text != self._said:  # not again and again
            terminal.say(f"{time.strftime('%H:%M:%S')} {self._stack}: {text}", self._stack)
        self._said = text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when the request is not met, or cannot be."""
    parser = arguments.parser("infra.operate.scale", __doc__, stack="")
    parser.add_argument(
        "--once",
        action="store_true",
        help="meet the current request, then end (for schedules)",
    )
    options = parser.parse_args(argv)
    scaler = Scaler(options.cwd.resolve(), options.stack)
    with _stop_on_signal(scaler):
        return arguments.run(scaler.once if options.once else scaler.run, options.stack)


@contextmanager
def _stop_on_signal(scaler: Scaler) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: scaler.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
