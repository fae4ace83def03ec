"""Workers that are killed or hang, and a store that goes away, under a real Ray Train.

Each run has to end with the very numbers of one that nothing happened to (tiny.py).
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.chaos_proxy import ChaosProxy
from tests.integration.training import tiny
from tests.integration.training.conftest import BUCKET

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

EPOCHS = 6
LAST_STEP = EPOCHS * tiny.STEPS - 1
JOB_DEADLINE_S = 400
CHECKPOINT_BYTES = 4 * tiny.BALLAST
SILENCE_S = 10  # a worker may be silent for so long; of a job by default it is 30


class Runs:
    """Submits the job with faults."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def submit(
        self, run: str, *faults: str, options: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        for fault in faults:
            (self.folder / fault).touch()
        env = self.folder / "env.yaml"
        told = {"TINY_FAULTS": str(self.folder), "OMP_NUM_THREADS": "1"} | variables
        env.write_text(json.dumps({"env_vars": told}))
        done: subprocess.CompletedProcess[str] = self.cluster.train(
            *("submit", tiny.__file__, "--name", run, "--runtime-env", str(env), "--"),
            *("--epochs", str(EPOCHS), *options),
            timeout=JOB_DEADLINE_S,
        )
        left = [path.name for path in self.folder.iterdir() if path != env]
        assert not left, f"these faults have not happened: {left}\n{done.stdout}"
        return done

    def history(self, run: str) -> list[dict[str, Any]]:
        lines = self.cluster.read(f"{run}/metrics.jsonl").splitlines()
        return [json.loads(line) for line in lines]

    def checkpoints(self, run: str) -> list[str]:
        return sorted({key.split("/")[1] for key in self.cluster.keys(f"{run}/checkpoint_0")})


@pytest.fixture
def runs(cluster: Any, tmp_path: Path) -> Runs:
    return Runs(cluster, tmp_path)


@pytest.fixture(scope="module")
def calm(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """History of the run that nothing happens to."""
    runs = Runs(cluster, tmp_path_factory.mktemp("calm"))
    done = runs.submit("tiny-calm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Training completed after 6 epochs" in done.stdout
    assert [name[:17] for name in runs.checkpoints("tiny-calm")] == [
        "checkpoint_000005",
        "checkpoint_000006",
    ]
    history = runs.history("tiny-calm")
    assert [record["epoch"] for record in history] == list(range(EPOCHS))
    return history


@pytest.fixture
def proxy(cluster: Any) -> Any:
    """Between the jobs and the store, for those that are told of it."""
    with ChaosProxy(urlsplit(cluster.outputs["objectStoreEndpoint"]).port) as between:
        yield between


def says(done: subprocess.CompletedProcess[str], pattern: str) -> bool:
    """Whether a line of the output matches; all of it is shown when none does."""
    assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout + done.stderr
    return True


def restored(out: str) -> list[int]:
    """Epochs that were done at each restart that found a checkpoint."""
    return [int(found) for found in re.findall(r"Restored from checkpoint \S+: (\d+) epochs", out)]


def test_killed_workers_change_nothing(runs: Runs, calm: list[dict[str, Any]]) -> None:  # F21
    chance = random.Random(21)
    steps = sorted(chance.sample(range(tiny.STEPS, LAST_STEP + 1), 3))
    faults = [f"kill-{chance.randrange(tiny.WORKERS)}-{step}" for step in steps]
    done = runs.submit("tiny-killed", *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert runs.history("tiny-killed") == calm
    found = restored(done.stdout)
    # A kill before the first checkpoint is stored leaves nothing to restore.
    for epochs, step in zip(found[::-1], steps[::-1], strict=False):
        # The epoch in hand is lost, and one more while its checkpoint is being stored.
        assert step // tiny.STEPS - 1 <= epochs <= step // tiny.STEPS, (found, steps)
    assert len(found) >= sum(step >= 2 * tiny.STEPS for step in steps)


def test_a_run_that_failed_goes_on_when_it_is_submitted_again(
    runs: Runs, calm: list[dict[str, Any]], proxy: ChaosProxy
) -> None:
    never = ("--max-failures", "0")
    done = runs.submit("tiny-cut", "kill-1-9", options=never)  # F21: more kills than allowed
    assert done.returncode == 1, done.stdout + done.stderr
    assert says(done, r"^error: worker \d failed once more than --max-failures: ")
    assert says(done, r"^Job '\w+' failed")
    told = runs.history("tiny-cut")
    assert told == calm[: len(told)]

    proxy.after(CHECKPOINT_BYTES * 3 // 2, proxy.down)
    gone = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "TRAINYARD_STORE_PATIENCE_S": "2"}
    done = runs.submit("tiny-cut", options=never, **gone)  # F22: away for good
    assert done.returncode == 1, done.stdout + done.stderr
    # Ray Train's controller may have been the first to notice.
    assert says(
        done, r"^error: (cannot \w+ s3://ray/tiny-cut/.* within 2 s|Ray .* AWS Error NETWORK)"
    )
    # The history never has an epoch that no checkpoint has, and may lack the last one that has.
    assert restored(done.stdout)[0] - len(told) in {0, 1}
    told = runs.history("tiny-cut")
    assert told == calm[: len(told)]
    assert 1 < len(told) < EPOCHS

    newest = runs.checkpoints("tiny-cut")[-1]
    whole = f"tiny-cut/{newest}/manifest.json" in runs.cluster.keys(f"tiny-cut/{newest}/")
    if whole:  # and not cut off
        key = f"tiny-cut/{newest}/checkpoint.pt"
        runs.cluster.s3().put_object(Bucket=BUCKET, Key=key, Body=b"not a checkpoint")
    done = runs.submit("tiny-cut")  # F23
    assert done.returncode == 0, done.stdout + done.stderr
    assert says(done, rf"warning: checkpoint {newest} is skipped: ")
    assert restored(done.stdout)[0] - len(told) in ({-1, 0} if whole else {0, 1})
    assert runs.history("tiny-cut") == calm


def test_a_store_that_comes_back_stops_nobody(  # F22
    runs: Runs, calm: list[dict[str, Any]], proxy: ChaosProxy
) -> None:
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
    done = runs.submit("tiny-shaken", AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert happened == ["cut", "pause", "leave"]
    assert runs.history("tiny-shaken") == calm


def test_a_worker_that_hangs_is_replaced_and_one_that_is_busy_is_not(  # F26
    runs: Runs, calm: list[dict[str, Any]]
) -> None:
    silence = {"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": str(SILENCE_S)}
    assert tiny.HOLD_S > SILENCE_S
    done = runs.submit("tiny-hung", "native-1-6", "stop-0-17", **silence)
    assert done.returncode == 0, done.stdout + done.stderr
    assert runs.history("tiny-hung") == calm
    assert len(restored(done.stdout)) == 1  # after the stop, and not after the long call
