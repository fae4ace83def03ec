"""Pulumi's own host of Python providers hears Ctrl-C, and reports a fault in one message.

Unaided it does neither: see cluster/provider.py.
"""

import contextlib
import os
import re
import signal
import sys
import time

import psutil
import pytest

from engine import crypto
from tests import quick

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def start(rented, pulumi_cli, monkeypatch):
    """Start a command of the pulumi CLI on the stack."""
    monkeypatch.setenv("PULUMI_PYTHON_CMD", sys.executable)
    monkeypatch.setattr(crypto, "ROUNDS", quick.PULUMIS)  # of the engine, which works here too
    (rented.root / "backend").mkdir()
    pulumi_cli.done(rented.project, os.environ, "dev", "stack init")
    started = []

    def run(command, *arguments):
        process = pulumi_cli.start(rented.project, os.environ, "dev", command, *arguments, "--yes")
        started.append(process)
        return process

    yield run
    for process in started:
        below = []
        if process.poll() is None:  # its plugins are in process groups of their own
            below = psutil.Process(process.pid).children(recursive=True)
        rented.kill(process)
        for child in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.stdout.close()


def _done(process):
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text


def test_one_ctrl_c_ends_an_up_with_one_message(rented, cloud, start):  # F11
    _done(start("up"))
    rented.done("preview", "--refresh", "--expect-no-changes")
    cloud.account.boots = ["stuck"]
    rented.declare(count=3)
    cloud.journal.clear()
    process = start("up", "--skip-preview")
    rented.wait_for(
        lambda: [entry.operation for entry in cloud.journal.entries][-3:] == ["instances"] * 3
    )
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert time.monotonic() - begun < 20
    said = r"lambda:Active \(?active.*canceled; the resources made so far are in the state"
    assert re.search(said, text, re.DOTALL)
    # The CLI interrupts the program too, which shows a traceback of its own.
    assert "dynamic/__main__.py" not in text
    assert rented.live() == rented.recorded()
    _done(start("destroy"))
    assert rented.live() == set()
