"""P23: the page of `train ui` with thousands of runs, next to `train runs --json`.

First is the time from the start of the command until the page has all runs; then that of an answer
with the best 100 of them, which is what a user waits for after each click.
"""

import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from bench import measure
from bench.form import Form
from bench.measure import FailedError, Ratio, in_turn
from bench.p18_client import RUNS, store_runs
from bench.scratch import ScratchStack
from trainyard.client import outputs
from trainyard.client.store import open_store

ROUNDS = 5
DEADLINE_S = 300.0
POLL_S = 0.05
TOKEN = "X-Trainyard-Token"  # noqa: S105 - the name of a header
QUERY = {"sort": "valid_acc", "order": "descending", "filter": "epochs>1"}


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    count = form.pick(RUNS, 20)
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        store_runs(open_store(outputs.read(None, stack.outputs_file(Path(name)))), count)
        listed = stack.train("runs", "--json")

        def plain() -> float:
            return measure.run(listed, env=stack.environment, cwd=stack.project).seconds

        def first() -> float:
            begun = time.perf_counter()
            with page(stack, "runs") as ask:
                ask.all(count)
                return time.perf_counter() - begun

        ours, theirs = in_turn(form.rounds(ROUNDS), first, plain)
        with page(stack, "runs") as ask:
            ask.all(count)
            [answers] = in_turn(form.rounds(ROUNDS), lambda: ask.seconds(QUERY))
    label = f"{count:,} runs"
    return [
        Ratio(name=f"P23 page, {label}", ours=ours, plain=theirs, unit="s", goal=1.5),
        Ratio(name=f"P23 answer, {label}", ours=answers, plain=theirs, unit="s", goal=0.1),
    ]


class Browser:
    """Asks for a stack's runs or jobs as the page does.

    Args:
        address: URL of the page, which ends with its key.
        stack: name of the stack.
        what: runs or jobs.
    """

    def __init__(self, address: str, stack: str, what: str) -> None:
        self._session = requests.Session()
        origin, _, key = address.partition("/#key=")
        headers = {"Origin": origin, TOKEN: key}
        opened = self._session.post(f"{origin}/api/open", headers=headers, timeout=DEADLINE_S)
        opened.raise_for_status()
        self._session.headers[TOKEN] = opened.json()["token"]
        self._url = f"{origin}/api/{stack}/{what}"

    def get(self, query: dict[str, str]) -> dict[str, object]:
        """Return the answer."""
        answer = self._session.get(self._url, params=query, timeout=DEADLINE_S)
        answer.raise_for_status()
        return dict(answer.json())

    def seconds(self, query: dict[str, str]) -> float:
        """Return the time until the answer."""
        begun = time.perf_counter()
        self.get(query)
        return time.perf_counter() - begun

    def all(self, count: int) -> None:
        """Wait until the page has so many runs."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = self.get(QUERY)
            if not found["reading"] and int(str(found["total"])) >= count:
                return
            if time.monotonic() > deadline:
                raise FailedError(f"the page has {found['total']} of {count} runs")
            time.sleep(POLL_S)


@contextmanager
def page(stack: ScratchStack, what: str) -> Iterator[Browser]:
    """Yield an open page of runs or jobs."""
    served = subprocess.Popen(
        stack.train("ui", "--no-open", "--port", "0"),
        env=stack.environment,
        cwd=stack.project,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = served.stdout.readline().split() if served.stdout else []
        if len(said) != 2:
            raise FailedError(f"`train ui` printed no address, but {said}")
        yield Browser(said[1], stack.name, what)
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(DEADLINE_S)
