"""`up` interrupted and killed: exactly the instances of the state exist afterwards."""

import itertools
import math
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.fakes.lambda_cloud import FakeCloud
from tests.integration.infra.lambda_cloud.rented import RentedStack
from trainyard import failpoints

pytestmark = pytest.mark.integration

SAFE_SECONDS = 10  # within which a canceled operation ends
LONG = 600.0
SEQUENCES_SECONDS = 45.0  # in which sequences of steps are begun


def _kill_during(rented, operation, *, commit, command="up"):
    """Kill a command while the cloud holds back its answer; False when it never asked for it."""
    rented.cloud.journal.clear()
    rented.cloud.faults.delay(operation, LONG, commit=commit)
    process = rented.start(command)
    rented.wait_for(
        lambda: (
            process.poll() is not None
            or any(entry.fault == "delay" for entry in rented.cloud.journal.entries)
        )
    )
    killed = process.poll() is None
    rented.kill(process)
    rented.cloud.faults.clear()
    return killed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_wait(rented, cloud, number):  # F11
    cloud.account.boots = ["stuck", "stuck"]
    process = rented.start("up")
    # The wait alone asks for all instances again and again.
    rented.wait_for(
        lambda: [entry.operation for entry in cloud.journal.entries][-3:] == ["instances"] * 3
    )
    assert len(rented.recorded()) == 2
    begun = time.monotonic()
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert time.monotonic() - begun < SAFE_SECONDS
    assert process.returncode == 1
    assert "canceled; the resources made so far are in the state" in text
    assert "Traceback" not in text
    assert rented.recorded() == rented.live()
    rented.done("destroy")
    assert rented.live() == set()
    assert cloud.account.ssh_keys == {}


def test_a_signal_while_instances_queue_for_their_launch(rented, cloud):  # F11
    rented.declare(count=8)
    cloud.faults.delay("launch", 1.0, commit=True)
    process = rented.start("up")
    rented.wait_for(lambda: cloud.journal.of("launch"))
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in text
    assert rented.recorded() == rented.live()
    assert len(rented.live()) == 1
    rented.done("up")
    assert len(rented.live()) == 8
    assert rented.recorded() == rented.live()


@pytest.mark.timeout(300)
def test_killed_at_each_write_of_the_state_nothing_is_billed_twice_or_left(  # F12 F20
    rented, cloud, monkeypatch
):
    rented.declare(count=1)

    def killed(command):
        for number in itertools.count(1):
            if command == "destroy":
                rented.done("up")
            monkeypatch.setenv(failpoints.VARIABLE, f"state.write kill {number}")
            code = rented.start(command).wait(60)
            monkeypatch.delenv(failpoints.VARIABLE)
            if code == 0:
                assert number > 1, f"{command} writes no state"
                return
            yield

    for _ in killed("up"):
        rented.done("up")
        assert len(rented.live()) == 1
        assert rented.live() == rented.recorded()
        rented.done("destroy")
        assert rented.live() == set()
        assert cloud.account.ssh_keys == cloud.account.rulesets == {}
    for _ in killed("destroy"):
        rented.done("destroy")
        assert rented.live() == set()
        assert cloud.account.ssh_keys == cloud.account.rulesets == {}


class Leaks(RuleBasedStateMachine):
    """Edits, faults and kills in any order; a recovery leaves exactly what the state says.

    Attributes:
        until: time after which the steps of a sequence that begins do nothing.
        engines: starts commands that are killed.
    """

    until = 0.0
    engines = None

    @initialize(luck=st.integers(0, 2**16))
    def begin(self, luck):
        # The first sequence of every run is the simplest, with a 0 here: nothing new to see.
        self.idle = luck == 0 or time.monotonic() > self.until
        self.exit = ExitStack()
        root = Path(tempfile.mkdtemp(prefix="ty-leaks-"))
        self.exit.callback(shutil.rmtree, root, ignore_errors=True)
        self.cloud = self.exit.enter_context(FakeCloud())
        variables = self.cloud.environment() | {
            "TRAINYARD_LAMBDA_PACE": "0.002",
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_BACKEND_URL": f"file://{root}/backend",
        }
        patch = self.exit.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables.items():
            patch.setenv(name, value)
        self.rented = RentedStack(root, self.cloud, self.engines)
        self.exit.callback(self.rented.end)
        self.stranger = self.cloud.account.add_instance("stranger").id
        self.config = {}
        self.settled = False

    @rule(
        count=st.integers(1, 3),
        dear=st.booleans(),
        cidrs=st.sampled_from([["203.0.113.0/24"], ["198.51.100.7/32"]]),
    )
    def edit(self, count, dear, cidrs):
        place = ("gpu_1x_h100_pcie", "us-west-3") if dear else ("gpu_1x_a10", "us-east-1")
        candidate = dict(zip(("type", "region"), place, strict=True))
        self.config = {"count": count, "cidrs": cidrs, "candidates": [candidate]}
        self.rented.declare(**self.config)
        self.settled = False

    @rule(
        operation=st.sampled_from(
            ["launch", "terminate", "add_ssh_key", "create_firewall_ruleset", "instances"]
        ),
        kind=st.sampled_from(["lost", "never arrived", "bad gateway"]),
    )
    def fault(self, operation, kind):
        if kind == "bad gateway":
            self.cloud.faults.respond(operation, 502, commit=True)
        else:
            self.cloud.faults.drop(operation, commit=kind == "lost")

    @rule(data=st.data())
    def vanish(self, data):
        ids = sorted(self.rented.live() - {self.stranger})
        if ids:
            self.cloud.account.disappear(data.draw(st.sampled_from(ids)))
            self.settled = False

    @rule()
    def up(self):
        if not self.idle:
            self.rented.run("up", "--refresh")
            self.settled = False

    @rule(
        # Operations that cost money, more often.
        operation=st.sampled_from(["launch", "launch", "terminate", "create_firewall_ruleset"]),
        commit=st.booleans(),
        command=st.sampled_from(["up", "up", "destroy"]),
    )
    def killed(self, operation, commit, command):
        if not self.idle and (command == "up" or self.rented.resources()):
            _kill_during(self.rented, operation, commit=commit, command=command)
            self.settled = False

    @rule()
    def recover(self):
        self.cloud.faults.clear()
        if not (self.idle or self.settled):
            self.rented.done("up", "--refresh")
            self.settled = True

    @precondition(lambda self: self.settled)
    @invariant()
    def nothing_is_left_over(self):
        assert self.rented.live() - {self.stranger} == self.rented.recorded()
        assert len(self.rented.recorded()) == self.config.get("count", 2)

    def teardown(self):
        # A failure is repeated, to be shown; time must not change it.
        failed = isinstance(sys.exception(), Exception)
        try:
            self.end()
        except Exception:
            failed = True
            raise
        finally:
            if failed:
                Leaks.until = math.inf

    def end(self):
        with self.exit:
            self.cloud.faults.clear()
            if self.rented.resources():
                self.rented.done("destroy")
            assert self.rented.live() == {self.stranger}
            assert self.cloud.account.ssh_keys == {}
            assert self.cloud.account.rulesets == {}
            assert self.cloud.journal.problems == []


@pytest.mark.timeout(300)
def test_no_sequence_of_edits_faults_and_kills_leaks(engines, monkeypatch):  # F20
    """Other sequences in each run; with TRAINYARD_SEED=<number> those of a run that failed."""
    number = int(os.environ.get("TRAINYARD_SEED") or secrets.randbelow(2**32))
    print(f"the same sequences again: TRAINYARD_SEED={number}")  # noqa: T201 (shown by a failure)
    monkeypatch.setattr(Leaks, "engines", engines)
    Leaks.until = time.monotonic() + SEQUENCES_SECONDS
    run_state_machine_as_test(
        seed(number)(Leaks),
        settings=settings(
            max_examples=12,
            stateful_step_count=8,
            phases=[Phase.generate],  # each step takes a second: nobody waits for fewer of them
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
