"""The pace of calls to Lambda Cloud, and the repetition of failed ones.

The bounds are the account's, so all threads of a process share one `Pace`. Other processes and
people use the account as well: calls that the API refuses because of them are repeated later.

A launch is repeated only when the API said that it was refused. After a lost answer there may be an
instance: the caller looks for it, by name and tags, before launching again.
"""

import contextlib
import math
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from infra.places.lambda_cloud.client import BASE_URL, LAUNCH, Client
from infra.places.lambda_cloud.errors import (
    LambdaError,
    LostReplyError,
    RateLimitedError,
    ServerError,
    UnreachableError,
)

# The API's bounds are 1 s and 12 s: what leaves here that far apart may arrive closer together.
REQUEST_SECONDS = 1.05
LAUNCH_SECONDS = 12.1
BUDGET_SECONDS = 180.0  # for one call to be let in
BACK_OFF_SECONDS = 1.0  # before the first repetition; doubles
BACK_OFF_LIMIT_SECONDS = 30.0
REPETITIONS = 3  # of a call that changes nothing
SCALE = "TRAINYARD_LAMBDA_PACE"


class _Gate:
    """Lets one thread pass at a time, each an interval after the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Held while waiting: later threads have to wait longer anyway.
        self._queue = threading.Lock()
        self._passed = -math.inf
        self._held_until = -math.inf

    def hold(self, seconds: float) -> None:
        """Let no thread pass for a while, including those that wait already."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def enter(
        self,
        interval: float,
        sleep: Callable[[float], None],
        then: Callable[[], float] | None = None,
    ) -> float:
        """Wait for the turn of this thread, then for `then`; return the time."""
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
        """Start with nothing sent yet; without a scale, TRAINYARD_LAMBDA_PACE has it (default: 1).

        `clock` returns seconds that only grow, `jitter` another number from 0 to 1 each time.
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
        """Wait until a request, or a launch, may go out; the caller sends it at once.

        `sleep` waits seconds; what it raises ends the wait of this thread.
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


class PacedClient(Client):
    """A client whose requests keep the pace.

    A request that changes nothing is repeated a few times after a fault of the other side; every
    request is repeated while it is refused for its pace, or cannot be sent.
    """

    def __init__(
        self,
        api_key: str,
        base_url: str = BASE_URL,
        *,
        sleep: Callable[[float], None],
        pace: Pace = PACE,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Prepare a client; nothing is sent. `sleep` waits seconds, and may end a call by raising.

        `pace` is shared with all who use the account; see Client for the rest.
        """
        super().__init__(api_key, base_url, transport)
        self._sleep, self._pace = sleep, pace

    def _call(self, method: str, path: str, *rest: Any) -> Any:
        """Send a request, and repeat it if allowed; see Client."""
        pace, budget, launch = self._pace, BUDGET_SECONDS * self._pace.scale, path == LAUNCH
        waited = 0.0  # for refusals only: a launch may have queued for minutes before its first
        refused = unsent = failed = 0
        while True:
            pace.wait(self._sleep, launch=launch)
            try:
                return super()._call(method, path, *rest)
            except RateLimitedError as error:
                delay = (error.retry_after or 0.0) + pace.back_off(refused)
                if waited + delay > budget:
                    text = (
                        f"{error}. Waited {waited:.0f} s and would have to wait {delay:.0f} s "
                        f"more, the limit is {budget:.0f} s: something else uses the account "
                        "(another stack, a script, the dashboard). End that or try again later"
                    )
                    raise RateLimitedError(text, status=error.status, code=error.code) from None
                pace.hold(delay, launch=launch)
                waited += delay
                refused += 1
            except UnreachableError:
                if unsent == REPETITIONS:
                    raise
                self._sleep(pace.back_off(unsent))
                unsent += 1
            except (ServerError, LostReplyError):
                if method != "GET" or failed == REPETITIONS:
                    raise
                self._sleep(pace.back_off(failed))
                failed += 1
                waited, refused, unsent = 0.0, 0, 0  # each repetition is a request of its own
