"""How fast a process may call Lambda Cloud, and what of a failed call is repeated.

The bounds are the account's, so all threads of a process share one `Pace`. Other processes and
people use the account as well: what the API refuses for that is asked again later.

A launch is repeated only when the API said that it was refused. After a lost answer there may be an
instance: whoever launches looks for it, by name and tags, before launching again.
"""

import contextlib
import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from infra.hosts.lambda_cloud.client import Client
from infra.hosts.lambda_cloud.errors import (
    LambdaError,
    LostReplyError,
    RateLimitedError,
    ServerError,
    UnreachableError,
)
from infra.hosts.lambda_cloud.model import (
    FileSystem,
    FirewallRule,
    FirewallRuleset,
    Image,
    LaunchRequest,
    Machine,
    Offer,
    SshKey,
)

# The API's bounds are 1 s and 12 s: what leaves here that far apart may arrive closer together.
REQUEST_SECONDS = 1.05
LAUNCH_SECONDS = 12.1
BUDGET_SECONDS = 180.0  # for one call to be let in
BACK_OFF_SECONDS = 1.0  # before the first repetition; doubles
BACK_OFF_LIMIT_SECONDS = 30.0
REPETITIONS = 3  # of a call that changes nothing
SCALE = "TRAINYARD_LAMBDA_PACE"

T = TypeVar("T")


class _Gate:
    """Lets one thread pass at a time, each an interval after the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Held while waiting: who comes later has to wait longer anyway.
        self._queue = threading.Lock()
        self._passed = -math.inf
        self._held_until = -math.inf

    def hold(self, seconds: float) -> None:
        """Let nobody pass for a while, those that wait already included."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def enter(
        self,
        interval: float,
        sleep: Callable[[float], None],
        then: Callable[[], float] | None = None,
    ) -> float:
        """Wait for the turn of this thread, then for what else is to be passed; return the time."""
        with self._queue:
            while (left := max(self._passed + interval, self._held_until) - self._clock()) > 0:
                sleep(left)
            self._passed = self._clock() if then is None else then()
            return self._passed


class Pace:
    """When the next request may go out. Shared by threads."""

    def __init__(
        self,
        *,
        scale: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Start with nothing sent yet.

        Args:
            scale: factor of all intervals; None takes it from TRAINYARD_LAMBDA_PACE, else 1.
            clock: seconds that only grow.
            jitter: a number from 0 to 1, another one each time.
        """
        self._scale = scale
        self._jitter = jitter
        self._requests = _Gate(clock)
        self._launches = _Gate(clock)

    @property
    def scale(self) -> float:
        """Factor of all intervals.

        Raises:
            LambdaError: the environment does not hold one.
        """
        if self._scale is not None:
            return self._scale
        text = os.environ.get(SCALE, "1")
        with contextlib.suppress(ValueError):
            if 0 < (scale := float(text)) < math.inf:
                return scale
        raise LambdaError(
            f"{SCALE}={text!r}: a number above 0 is needed. Unset it for Lambda's own pace"
        )

    def wait(self, sleep: Callable[[float], None], *, launch: bool = False) -> None:
        """Wait until a request may go out; the caller sends it at once.

        Args:
            sleep: waits seconds; what it raises ends the wait of this thread.
            launch: whether the request is a launch.
        """

        def enter() -> float:
            return self._requests.enter(REQUEST_SECONDS * self.scale, sleep)

        if launch:
            self._launches.enter(LAUNCH_SECONDS * self.scale, sleep, then=enter)
        else:
            enter()

    def hold(self, seconds: float, *, launch: bool = False) -> None:
        """Let no request, or no launch, out for a while."""
        (self._launches if launch else self._requests).hold(seconds)

    def back_off(self, attempt: int) -> float:
        """Return the seconds to wait after the given failure, counted from 0."""
        longest: float = min(BACK_OFF_SECONDS * 2**attempt, BACK_OFF_LIMIT_SECONDS)
        return longest * (1 + self._jitter()) / 2 * self.scale


PACE = Pace()


class Paced:
    """A client whose calls keep the pace; the same methods.

    Calls that change nothing are repeated a few times after a fault of the other side; every call
    is repeated while it is refused for its pace, or cannot be sent.
    """

    def __init__(
        self,
        client: Client,
        pace: Pace = PACE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Pace a client.

        Args:
            client: makes the calls.
            pace: shared with all who use the account.
            sleep: waits seconds; what it raises ends the call that waits.
        """
        self._client = client
        self._pace = pace
        self._sleep = sleep

    def instance_types(self) -> dict[str, Offer]:
        """Return all types of instance by name."""
        return self._read(self._client.instance_types)

    def instances(self) -> list[Machine]:
        """Return the instances of the account."""
        return self._read(self._client.instances)

    def instance(self, id_: str) -> Machine:
        """Return one instance."""
        return self._read(lambda: self._client.instance(id_))

    def launch(self, request: LaunchRequest) -> str:
        """Launch one instance and return its id.

        After a ServerError or a LostReplyError there may be an instance all the same.
        """
        return self._call(lambda: self._client.launch(request), launch=True)

    def terminate(self, ids: Sequence[str]) -> list[Machine]:
        """Begin to end instances."""
        return self._call(lambda: self._client.terminate(ids))

    def restart(self, ids: Sequence[str]) -> list[Machine]:
        """Restart instances."""
        return self._call(lambda: self._client.restart(ids))

    def rename(self, id_: str, name: str) -> Machine:
        """Give an instance another name."""
        return self._call(lambda: self._client.rename(id_, name))

    def ssh_keys(self) -> list[SshKey]:
        """Return the account's SSH keys."""
        return self._read(self._client.ssh_keys)

    def add_ssh_key(self, name: str, public_key: str | None = None) -> SshKey:
        """Add an SSH key; without a public key the API makes a pair."""
        return self._call(lambda: self._client.add_ssh_key(name, public_key))

    def delete_ssh_key(self, id_: str) -> None:
        """Delete an SSH key."""
        self._call(lambda: self._client.delete_ssh_key(id_))

    def file_systems(self) -> list[FileSystem]:
        """Return the account's file systems."""
        return self._read(self._client.file_systems)

    def create_file_system(self, name: str, region: str) -> FileSystem:
        """Make a file system."""
        return self._call(lambda: self._client.create_file_system(name, region))

    def delete_file_system(self, id_: str) -> None:
        """Delete a file system with all that is in it."""
        self._call(lambda: self._client.delete_file_system(id_))

    def firewall_rulesets(self) -> list[FirewallRuleset]:
        """Return the account's firewall rulesets, without the global one."""
        return self._read(self._client.firewall_rulesets)

    def firewall_ruleset(self, id_: str) -> FirewallRuleset:
        """Return one firewall ruleset."""
        return self._read(lambda: self._client.firewall_ruleset(id_))

    def create_firewall_ruleset(
        self, name: str, region: str, rules: Sequence[FirewallRule]
    ) -> FirewallRuleset:
        """Make a firewall ruleset."""
        return self._call(lambda: self._client.create_firewall_ruleset(name, region, rules))

    def update_firewall_ruleset(
        self, id_: str, rules: Sequence[FirewallRule], name: str
    ) -> FirewallRuleset:
        """Replace all rules and the name of a firewall ruleset."""
        return self._call(lambda: self._client.update_firewall_ruleset(id_, rules, name))

    def delete_firewall_ruleset(self, id_: str) -> None:
        """Delete a firewall ruleset that no instance uses."""
        self._call(lambda: self._client.delete_firewall_ruleset(id_))

    def images(self) -> list[Image]:
        """Return the images that instances can start from."""
        return self._read(self._client.images)

    def _read(self, call: Callable[[], T]) -> T:
        """Make a call that changes nothing; repeat it after a fault of the other side."""
        for attempt in range(REPETITIONS):
            try:
                return self._call(call)
            except (ServerError, LostReplyError):
                self._sleep(self._pace.back_off(attempt))
        return self._call(call)

    def _call(self, call: Callable[[], T], *, launch: bool = False) -> T:
        """Make a call; repeat it while the API refuses it for its pace, or it cannot be sent.

        Raises:
            RateLimitedError: it was refused for longer than BUDGET_SECONDS.
        """
        pace, budget = self._pace, BUDGET_SECONDS * self._pace.scale
        waited = 0.0  # for refusals only: a launch may have queued for minutes before its first
        refused = unsent = 0
        while True:
            pace.wait(self._sleep, launch=launch)
            try:
                return call()
            except UnreachableError:
                if unsent == REPETITIONS:
                    raise
                self._sleep(pace.back_off(unsent))
                unsent += 1
            except RateLimitedError as error:
                delay = (error.retry_after or 0.0) + pace.back_off(refused)
                if waited + delay > budget:
                    raise _over_budget(error, waited, delay, budget) from error
                pace.hold(delay, launch=launch)
                waited += delay
                refused += 1


def _over_budget(
    error: RateLimitedError, waited: float, delay: float, budget: float
) -> RateLimitedError:
    return RateLimitedError(
        f"{error}. Waited {waited:.0f} s and would have to wait {delay:.0f} s more, the limit is "
        f"{budget:.0f} s: something else uses the account (another stack, a script, the "
        "dashboard). End that or try again later",
        status=error.status,
        code=error.code,
        message=error.message,
        suggestion=error.suggestion,
    )
