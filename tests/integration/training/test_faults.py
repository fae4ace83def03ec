"""Workers that are killed or hang, and a store that goes away, under a real Ray Train.

One run goes through all of it, job after job, and has to end with exactly the numbers of an
undisturbed training (calm.py).
"""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.chaos_proxy import ChaosProxy
from tests.integration.training import hanging, tiny
from tests.integration.training.conftest import BUCKET, REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

RUN = "tiny"
EPOCHS = 12
JOB_DEADLINE_S = 400
CHECKPOINT_BYTES = 4 * tiny.BALLAST
SILENCE_S = 10  # a worker may be silent for so long; of a job by default it is 30


class Runs:
    """Submits the run's jobs, with faults."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def submit(
        self, *faults: str, options: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for fault in faults:
            (self.folder / fault).touch()
        env = self.folder / "env.yaml"
        told = {"TINY_FAULTS": str(self.folder), "OMP_NUM_THREADS": "1"} | variables
        env.write_text(json.dumps({"env_vars": told}))
        done: subprocess.CompletedProcess[str] = self.cluster.train(
            *("submit", tiny.__file__, "--name", RUN, "--runtime-env", str(env), "--"),
            *("--epochs", str(EPOCHS), *options),
            timeout=JOB_DEADLINE_S,
        )
        left = [path.name for path in self.folder.iterdir() if path != env]
        assert not left, f"these faults have not happened: {left}\n{done.stdout}"
        return done

    def history(self) -> list[dict[str, Any]]:
        records = map(json.loads, self.cluster.read(f"{RUN}/metrics.jsonl").splitlines())
        return [{k: v for k, v in record.items() if k != "minutes"} for record in records]

    def checkpoints(self) -> list[str]:
        return sorted({key.split("/")[1] for key in self.cluster.keys(f"{RUN}/checkpoint_0")})


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> list[dict[str, Any]]:
    """History of an undisturbed training."""
    meeting = tmp_path_factory.mktemp("calm") / "meeting"
    command = [sys.executable, "-m", "tests.integration.training.calm", str(EPOCHS), str(meeting)]
    out = subprocess.check_output(command, cwd=REPOSITORY, timeout=JOB_DEADLINE_S, text=True)
    history: list[dict[str, Any]] = json.loads(out)
    assert [record["epoch"] for record in history] == list(range(EPOCHS))
    return history


@pytest.fixture(scope="module")
def runs(cluster, tmp_path_factory) -> Runs:
    return Runs(cluster, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def proxy(cluster) -> Iterator[ChaosProxy]:
    """Between the store and the jobs that get its address."""
    with ChaosProxy(urlsplit(cluster.outputs["objectStoreEndpoint"]).port) as between:
        yield between


@dataclass
class Failed:
    """The results of a failed job: its output, and the run's history."""

    done: subprocess.CompletedProcess[str]
    told: list[dict[str, Any]]


@pytest.fixture(scope="module")
def hurt(runs) -> Failed:
    """The run's first job: a worker is busy, one hangs, and two are killed, of which one too many.

    Each comes in another epoch, and all after the first checkpoint is stored but the first.
    """
    assert tiny.HOLD_S > SILENCE_S
    done = runs.submit(
        *("native-1-2", "stop-0-9", "kill-1-14", "kill-0-21"),
        options=("--max-failures", "2"),
        RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S=str(SILENCE_S),
    )
    return Failed(done, runs.history())


@pytest.fixture(scope="module")
def cut_off(runs, hurt, proxy) -> Failed:
    """The second: while it stores its second checkpoint the store goes away for good."""
    proxy.after(CHECKPOINT_BYTES * 3 // 2, proxy.down)
    done = runs.submit(
        options=("--max-failures", "0"), AWS_ENDPOINT_URL=at(proxy), TRAINYARD_STORE_PATIENCE_S="2"
    )
    return Failed(done, runs.history())


def at(proxy: ChaosProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


def says(done: subprocess.CompletedProcess[str], pattern: str) -> bool:
    """Whether a line of the output matches; all of it is shown when none does."""
    assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout + done.stderr
    return True


def restored(out: str) -> list[int]:
    """Epochs that were done at each restart that found a checkpoint."""
    return [int(found) for found in re.findall(r"Restored from checkpoint \S+: (\d+) epochs", out)]


def test_a_worker_that_hangs_is_replaced_and_one_that_is_busy_is_not(hurt, calm):  # F26
    found = restored(hurt.done.stdout)
    # After the stop and after the first kill, and not after the long call.
    assert len(found) == 2, hurt.done.stdout + hurt.done.stderr
    for epochs, step in zip(found, (9, 14), strict=True):
        # The epoch in hand is lost, and one more while its checkpoint is being stored.
        assert step // tiny.STEPS - 1 <= epochs <= step // tiny.STEPS
    assert hurt.told == calm[: len(hurt.told)]


def test_killed_workers_change_nothing_and_one_too_many_ends_the_job(hurt, calm):  # F21
    assert hurt.done.returncode == 1, hurt.done.stdout + hurt.done.stderr
    assert says(hurt.done, r"^error: worker \d failed once more than --max-failures: ")
    assert says(hurt.done, r"^Job '\w+' failed")
    assert hurt.told == calm[: len(hurt.told)]
    assert len(hurt.told) > 2  # beyond what was there at the last restart


def test_a_store_that_stays_away_ends_the_job(hurt, cut_off, calm):  # F22
    done, told = cut_off.done, cut_off.told
    assert done.returncode == 1, done.stdout + done.stderr
    # Ray Train's controller may have been the first to notice.
    assert says(done, r"^error: (cannot \w+ s3://ray/tiny/.* within 2 s|Ray .* AWS Error NETWORK)")
    # The history never has an epoch that no checkpoint has, and may lack the last one that has.
    assert restored(done.stdout)[0] - len(hurt.told) in {0, 1}
    assert told == calm[: len(told)]
    assert len(hurt.told) <= len(told) < EPOCHS


def test_a_run_that_failed_goes_on_and_a_store_that_comes_back_stops_nobody(  # F21 F22 F23
    runs, cut_off, calm, proxy
):
    told = cut_off.told
    newest = runs.checkpoints()[-1]
    whole = f"{RUN}/{newest}/manifest.json" in runs.cluster.keys(f"{RUN}/{newest}/")
    if whole:  # and not cut off
        key = f"{RUN}/{newest}/checkpoint.pt"
        runs.cluster.s3().put_object(Bucket=BUCKET, Key=key, Body=b"not a checkpoint")
    happened = []

    def arm() -> None:
        if faults:
            proxy.after(CHECKPOINT_BYTES * 3 // 2, faults.pop(0))

    def cut() -> None:
        happened.append("cut")
        proxy.cut()
        arm()

    def pause() -> None:
        happened.append("pause")
        proxy.pause()
        threading.Timer(3, proxy.resume).start()
        arm()

    def leave() -> None:
        happened.append("leave")
        proxy.down()
        threading.Timer(3, proxy.up).start()
        arm()

    faults = [cut, pause, leave]
    arm()
    proxy.up()
    # The run would go on with the last job's number of failures, which was none.
    done = runs.submit(options=("--max-failures", "3"), AWS_ENDPOINT_URL=at(proxy))
    assert done.returncode == 0, done.stdout + done.stderr
    assert happened == ["cut", "pause", "leave"]
    assert says(done, rf"warning: checkpoint {newest} is skipped: ")
    assert restored(done.stdout)[0] - len(told) in ({-1, 0} if whole else {0, 1})
    assert says(done, f"^Training completed after {EPOCHS} epochs: s3://ray/tiny$")
    assert runs.history() == calm
    assert len(runs.checkpoints()) == 2


def test_a_hang_is_kept_with_the_stacks_of_all_workers_before_it_ends(cluster, tmp_path):  # F26
    fault, env = tmp_path / "hang", tmp_path / "env.json"
    fault.touch()
    env.write_text(json.dumps({"env_vars": {"HANG_FILE": str(fault), "OMP_NUM_THREADS": "1"}}))
    done = cluster.train(
        *("submit", hanging.__file__, "--name", "hanging", "--runtime-env", str(env)),
        *("--", "--hang-minutes", "0.1", "--max-failures", "1"),
        timeout=JOB_DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (key,) = cluster.keys("hanging/hangs/")
    assert says(done, rf"^Hang: no batch of worker .*; the stacks of all .*/{re.escape(key)}\.$")
    first, second = cluster.read(key).decode().split("==> worker ")[1:]
    assert "all_reduce" in first  # it waits for the other one
    assert "wait_for_ever" in second
    assert (first[:7], second[:7]) == ("0, pid ", "1, pid ")
    assert restored(done.stdout) == [1]  # the epoch before it is not trained again
    assert says(done, r"^Worker \d.* has failed; restart 1 of 1, from the last checkpoint\.")
    assert f"hang        s3://{BUCKET}/{key}" in cluster.train("show", "hanging", timeout=60).stdout
