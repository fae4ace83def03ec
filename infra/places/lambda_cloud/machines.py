"""Launch, wait for and end instances so that none is made twice and none is left.

A launch may have happened although its reply was lost or the program was killed, so before each one
the account is asked for an instance with the stack's id and the node's number in its tags.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster.provider import Args, Given, say
from infra.machines import identity
from infra.places.lambda_cloud.choice import Pick, available
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import (
    AccessError,
    InsufficientCapacityError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    RateLimitedError,
    ServerError,
    UnreachableError,
)
from infra.places.lambda_cloud.model import Machine
from infra.places.lambda_cloud.pacing import PACE
from infra.service.cancellation import Cancellation

ENDED = frozenset({"terminated", "terminating"})  # nothing to do but wait
DEAD = ENDED | {"unhealthy", "preempted"}  # will not become active, and may be billed all the same
POLL_SECONDS = 5.0
SHOWN = ("region_name", "instance_type_name", "ssh_key_names", "name")  # of a launch
TELL_SECONDS = 30.0  # between two lines on one instance that is still booting
LOOKS = 12  # after a lost reply, POLL_SECONDS apart: a new instance may be listed late
TERMINATE_STEP_SECONDS = 30.0  # "try again in 60 seconds", says the API now and then
TERMINATE_LIMIT_SECONDS = 15 * 60.0
# Errors that say nothing of an instance: the API is down, or a laptop just woke up.
SILENT = (LostReplyError, RateLimitedError, ServerError, UnreachableError)
# No wait is shorter, however small the scale: instances end in their own time.
LEAST_LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Clock:
    """Time as a wait sees it; all intervals are scaled like the pace of requests.

    Attributes:
        now: seconds that only grow.
        sleep: waits; raises CanceledError when the user asks to stop.
        scale: factor of all intervals.
    """

    sleep: Callable[[float], None] = field(default_factory=lambda: Cancellation().sleep)
    now: Callable[[], float] = time.monotonic
    scale: float = field(default_factory=lambda: PACE.scale)

    def limit(self, seconds: float) -> float:
        return max(seconds * self.scale, min(seconds, LEAST_LIMIT_SECONDS))


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


class Order(Args):
    """One instance that a stack wants: the arguments of an Instance.

    Attributes:
        node: number of the instance in it, from 0.
        count: instances that the stack wants; those with higher numbers are about to be ended.
        choices: where to launch, in order.
        tags: those that all instances of the stack share.
        ttlHours: until it ends itself, from its launch; 0 for never.
        firewallRulesetIds: id of the ruleset in each region.
        fileSystemMounts: ids by mount point.
        userData: a secret.
    """

    name: str
    stackId: Given[str]
    node: int
    count: int
    choices: Given[Sequence[Mapping[str, Any]]]
    sshKeyName: Given[str]
    hostname: str
    userData: Given[str] = field(repr=False)
    tags: Given[Mapping[str, str]]
    ttlHours: float
    firewallRulesetIds: Given[Mapping[str, str]]
    fileSystemMounts: Given[Mapping[str, str]]

    @property
    def picks(self) -> list[Pick]:
        """Where it can be: instances mount file systems of their region, the first choice's."""
        picks = [Pick.model_validate(each) for each in self.choices]
        return [p for p in picks if not self.fileSystemMounts or p.region == picks[0].region]

    def request(self, pick: Pick) -> dict[str, Any]:
        """Return the launch of this instance at one place, with the API's own names."""
        tags = {
            **self.tags,
            identity.ID: self.stackId,
            identity.NODE: str(self.node),
            identity.SPEC: self.spec(pick),
        }
        if self.ttlHours:
            # Its timer is set after its first boot: until then, only this tells when it ends.
            end = datetime.now(UTC) + timedelta(hours=self.ttlHours)
            tags[identity.END] = end.isoformat(timespec="seconds")
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        names = {"name": self.name, "hostname": self.hostname}
        return {**self._fixed(pick), **names, "tags": listed}

    def spec(self, pick: Pick) -> str:
        """Return a digest of all that cannot change on a live instance, but for its host name."""
        text = json.dumps(self._fixed(pick), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _fixed(self, pick: Pick) -> dict[str, Any]:
        # A region that lacks its ruleset is an error: without one, the account's rules apply.
        rulesets = [self.firewallRulesetIds[pick.region]] if self.firewallRulesetIds else []
        fixed = {
            "region_name": pick.region,
            "instance_type_name": pick.instance_type,
            "ssh_key_names": [self.sshKeyName],
            "user_data": self.userData,
            "file_system_mounts": [
                {"mount_point": path, "file_system_id": id_}
                for path, id_ in self.fileSystemMounts.items()
            ],
            "firewall_rulesets": [{"id": id_} for id_ in rulesets],
        }
        return {key: value for key, value in fixed.items() if value}


# One launch at a time: the first one that succeeds decides where the others of its stack go, and
# the API takes one in 12 s anyway.
_LAUNCHING = threading.Lock()


def launch(api: Client, order: Order, clock: Clock) -> tuple[str, Pick]:
    """Launch an instance, or take over the one that an interrupted launch made.

    The first instance of a stack goes to the first pick that has room; the others go where it is.
    Instances that the stack no longer wants are ended first where they hold the room: Pulumi would
    delete them after this launch, which therefore would never succeed.

    Returns:
        Its id and pick. It is still booting.

    Raises:
        LambdaError: no pick has room.
        LambdaError: the API refuses, or its reply was lost and no instance is found.
        CanceledError: the user asked to stop while others were being launched.
    """
    with _LAUNCHING:
        clock.sleep(0)
        machines = api.instances()
        if (found := _take_over(api, order, machines, clock)) is not None:
            return found
        beside = [m for m in live(machines, order.stackId) if _node(m) != order.node]
        while (placed := _launch_beside(api, order, beside, clock)) is None:
            unwanted = [m for m in beside if _node(m) >= order.count]
            if not unwanted:
                raise _no_room(api, order, _picks_of(beside, order))
            names = ", ".join(m.name or m.id for m in unwanted)
            say(f"Ending {names} to make room: the stack wants {order.count} now")
            terminate(api, [m.id for m in unwanted], clock)
            beside = [m for m in beside if m not in unwanted]
        return placed


def find(api: Client, order: Order, clock: Clock) -> tuple[str, Pick] | None:
    """Return the instance that an interrupted launch of this order made; end unfit ones."""
    with _LAUNCHING:
        return _take_over(api, order, api.instances(), clock)


def terminate(api: Client, ids: Collection[str], clock: Clock, why: str = "") -> None:
    """End instances, and wait until the API says that they have ended.

    One that the API refuses to end does not keep the others. The reason, if any, is told.

    Raises:
        LambdaError: some did not end in time, or the API kept refusing.
        CanceledError: the user asked to stop; they are ending, or will be when this runs again.
    """
    if ids and why:
        say(f"Ending {', '.join(ids)}: {why}")
    began, step = clock.now(), TERMINATE_STEP_SECONDS * clock.scale
    refused = _begin_to_end(api, sorted(ids))
    while refused and clock.now() - began + step <= clock.limit(TERMINATE_LIMIT_SECONDS):
        for id_, error in refused.items():
            say(f"instance {id_} is not ended yet, trying again ({error})")
        clock.sleep(step)
        refused = _begin_to_end(api, list(refused))
    waited = clock.now() - began
    _await_end(api, set(ids) - set(refused), clock, began)
    if refused:
        whys = dict.fromkeys(map(str, refused.values()))
        raise LambdaError(
            f"instance {', '.join(refused)} could not be terminated for {_span(waited)} and is "
            f"still billed ({'; '.join(whys)}); it is kept in the state: run destroy again, or "
            "end it on the account's page"
        )


def _await_end(api: Client, left: set[str], clock: Clock, began: float) -> None:
    while True:
        for id_ in sorted(left):
            if _has_ended(api, id_):
                say(f"Terminated instance {id_}")
                left.discard(id_)
        if not left:
            return
        waited = clock.now() - began
        if waited >= clock.limit(TERMINATE_LIMIT_SECONDS):
            raise LambdaError(
                f"{', '.join(sorted(left))}: not terminated after {_span(waited)} and still "
                "billed; look at the account's page, then run destroy again"
            )
        clock.sleep(POLL_SECONDS * clock.scale)


def terminate_strays(api: Client, stack_id: str, clock: Clock) -> None:
    """End a stack's instances that are not in any state: the replies to their launches were lost.

    All instances that its state knows are gone by now.
    """
    found = [
        m.id
        for m in api.instances()
        if identity.is_of(m.tags, stack_id) and m.status != "terminated"
    ]
    terminate(api, found, clock, "of this stack, but in no state")


def await_active(
    api: Client, ids: Sequence[str], limit_seconds: float, clock: Clock
) -> dict[str, Machine]:
    """Wait until all instances are active and have an address; return them by id.

    Instances that are dead, or late at the deadline, are terminated: they are billed. So are others
    that are the same nodes of the stack: a launch whose reply was lost may appear in the list after
    another one has taken its place.

    Raises:
        LambdaError: some are dead or late.
        CanceledError: the user asked to stop.
    """
    began = clock.now()
    told: dict[str, tuple[str, float]] = {}
    while True:
        now = clock.now()
        try:
            there = {machine.id: machine for machine in api.instances()}
        except SILENT as error:
            # Instances continue to boot meanwhile.
            if now - began >= limit_seconds:
                raise
            say(f"no answer about the instances, asking again ({error})")
            clock.sleep(POLL_SECONDS * clock.scale)
            continue
        status = {id_: _status(api, id_, there) for id_ in ids}
        if dead := {id_: text for id_, text in status.items() if text in DEAD}:
            raise _given_up(api, dead, "while it was booting", clock)
        waiting = {id_: text for id_, text in status.items() if text != "active"}
        if not waiting:
            found = {id_: there[id_] for id_ in ids}
            twins = _twins(found, there.values())
            terminate(api, twins, clock, "launched twice, since a reply was lost")
            return found
        if now - began >= limit_seconds:
            raise _given_up(api, waiting, f"after {limit_seconds / 60:g} min", clock)
        for id_, text in waiting.items():
            before, when = told.get(id_, ("", 0.0))
            if text != before or now - when >= TELL_SECONDS * clock.scale:
                say(f"Instance {id_} in {text} status")
                told[id_] = (text, now)
        clock.sleep(POLL_SECONDS * clock.scale)


def _twins(own: Mapping[str, Machine], there: Iterable[Machine]) -> list[str]:
    """Return instances that are the same nodes as some others: no timer ends them."""
    nodes = {(m.tags.get(identity.ID), m.tags.get(identity.NODE)) for m in own.values()}
    return [
        machine.id
        for machine in there
        if machine.id not in own
        and machine.status not in ENDED
        and machine.tags.get(identity.ID)
        and (machine.tags[identity.ID], machine.tags.get(identity.NODE)) in nodes
    ]


def live(machines: Iterable[Machine], stack_id: str) -> list[Machine]:
    """Return the instances of a stack that have not ended."""
    return [m for m in machines if identity.is_of(m.tags, stack_id) and m.status not in ENDED]


def look_up(api: Client, id_: str) -> Machine | None:
    """Return an instance, None if it has ended or is ending."""
    try:
        machine = api.instance(id_)
    except NotFoundError:
        return None
    return None if machine.status in ENDED else machine


def _take_over(
    api: Client, order: Order, machines: Iterable[Machine], clock: Clock
) -> tuple[str, Pick] | None:
    mine = [machine for machine in live(machines, order.stackId) if _node(machine) == order.node]
    fitting = [(machine.id, pick) for machine in mine if (pick := _pick_of(machine, order))]
    kept = fitting[0] if fitting else None
    superfluous = [machine.id for machine in mine if kept is None or machine.id != kept[0]]
    terminate(api, superfluous, clock, f"left over from an earlier launch of {order.name}")
    if kept is not None:
        say(f"Taking over instance {kept[0]}, which an interrupted launch of {order.name} made")
    return kept


def _pick_of(machine: Machine, order: Order) -> Pick | None:
    """Return the pick whose launch would now make the same instance, None if there is none."""
    pick = next((pick for pick in order.picks if is_at(machine, pick)), None)
    if pick is None or machine.status in DEAD:
        return None
    return pick if machine.tags.get(identity.SPEC) == order.spec(pick) else None


def _picks_of(machines: Sequence[Machine], order: Order) -> list[Pick]:
    """Return the picks that already have instances of the stack."""
    return [pick for pick in order.picks if any(is_at(m, pick) for m in machines)]


def _launch_beside(
    api: Client, order: Order, beside: Sequence[Machine], clock: Clock
) -> tuple[str, Pick] | None:
    """Launch where the stack's other instances are, or anywhere for the first; None: no room."""
    for pick in _picks_of(beside, order) or order.picks:
        try:
            return _launch_at(api, order, pick, clock), pick
        except InsufficientCapacityError:
            say(f"no capacity for {order.name}: {pick}")
    return None


def _launch_at(api: Client, order: Order, pick: Pick, clock: Clock) -> str:
    request = order.request(pick)
    # Not its user data, which holds the host's private key, nor what is long.
    shown = {key: request[key] for key in SHOWN}
    say(f"Launching instance using key name {order.sshKeyName} and name {order.name}")
    say(f"Launch instance with parameters {shown}")
    try:
        id_ = api.launch(request)
    except (LostReplyError, ServerError) as error:
        say(f"the reply to the launch of {order.name} was lost; looking for the instance ({error})")
        # Where it is not found, it is safe to repeat the launch; a second lost reply is an error.
        id_ = _look(api, order, clock) or api.launch(request)
    say(f"Launched instance {order.name}: {id_}")
    return id_


def _look(api: Client, order: Order, clock: Clock) -> str | None:
    for _ in range(LOOKS):
        clock.sleep(POLL_SECONDS * clock.scale)
        for machine in live(api.instances(), order.stackId):
            if _node(machine) == order.node:
                return machine.id
    return None


def _no_room(api: Client, order: Order, tried: Sequence[Pick]) -> LambdaError:
    if tried:
        return LambdaError(
            f"not enough capacity for {order.name} where the stack's other instances are "
            f"({', '.join(map(str, tried))}), and a stack lives in one region: ask for fewer "
            "instances, run up again later, or destroy and run up to begin elsewhere"
        )
    places = ", ".join(map(str, order.picks))
    return LambdaError(
        f"not enough capacity to launch {order.name} ({places}). {available(api.instance_types())}"
    )


def _begin_to_end(api: Client, ids: Iterable[str]) -> dict[str, LambdaError]:
    """Ask for the end of each; return those that live on, and why."""
    refused: dict[str, LambdaError] = {}
    for id_ in ids:
        try:
            api.terminate(id_)
        except AccessError:
            raise
        except LambdaError as error:
            if not _has_ended(api, id_):
                refused[id_] = error
    return refused


def _has_ended(api: Client, id_: str) -> bool:
    """Return whether an instance is gone, and no longer billed, as far as the API can tell."""
    try:
        return api.instance(id_).status == "terminated"
    except NotFoundError:
        return True
    except SILENT:
        return False


def _status(api: Client, id_: str, there: Mapping[str, Machine]) -> str:
    """Return the status, "booting" for an active instance without an address."""
    machine = there.get(id_)
    if machine is None:
        # The list may lag behind a launch, or have a gap; the instance's own page decides.
        return "terminated" if _has_ended(api, id_) else "booting"
    return "booting" if machine.status == "active" and not machine.ip else machine.status


def _given_up(api: Client, status: Mapping[str, str], when: str, clock: Clock) -> LambdaError:
    names = ", ".join(f"{id_} ({text})" for id_, text in status.items())
    ending = [id_ for id_, text in status.items() if text not in ENDED]
    if ending:
        terminate(api, ending, clock)
    return LambdaError(
        f"instance {names} did not become active {when}; it is terminated. Run up with --refresh "
        "to launch another one"
    )


def _node(machine: Machine) -> int:
    """Return the number that an instance has in its stack; -1 where its tags were changed."""
    text = machine.tags.get(identity.NODE, "")
    return int(text) if text.isdecimal() else -1


def is_at(machine: Machine, pick: Pick) -> bool:
    """Return whether an instance is where a pick says, and of its type."""
    return (machine.instance_type, machine.region) == (pick.instance_type, pick.region)
