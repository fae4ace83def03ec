"""The job chargpt end to end: a lost worker, a sample, and the losses of the plain loop."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from trainyard.data.node_folder import FOLDER_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("chargpt_cut.py")
PLAIN = runpy.run_path(str(Path(__file__).parents[3] / "bench" / "gpt_loop.py"))
STEPS = 10
CHARACTERS = 2000
SMALL = ["--text", "python", "--steps-per-epoch", str(STEPS), "--max-characters", str(CHARACTERS)]
SAMPLE = ["--prompt", "The ", "--sample-characters", "40"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread, as in workers of one CPU: sums in another order round differently."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_run_that_goes_on_learns_like_a_plain_loop_and_writes_text(  # C14 C15 C16 C21
    cluster, tmp_path, monkeypatch
):
    (tmp_path / "kill").touch()
    variables = {FOLDER_VARIABLE: str(tmp_path / "node"), "FAULT": str(tmp_path / "kill")}
    node = tmp_path / "env.yaml"
    node.write_text(json.dumps({"env_vars": variables}))
    out = cluster.done(
        *("submit", str(SCRIPT), "--name", "gpt", "--runtime-env", str(node), "--"),
        *(*SMALL, *SAMPLE, "--cpu", "--epochs", "2"),
        timeout=250,
    )
    assert not (tmp_path / "kill").exists()
    assert re.search(r"Restored from checkpoint s3://ray/gpt/\S+: 1 epochs are done", out)
    assert re.search(r"Epoch: 002/002 \| .* \| Valid\. Loss: \d\.\d{4} \| [\d,]+ tokens/s", out)
    sample = cluster.read("gpt/sample.txt").decode()
    assert sample.startswith("The ")
    assert len(sample) == 44
    assert f"A sample, as in s3://ray/gpt/sample.txt:\n{sample}\n" in out
    assert cluster.read("gpt/curves.png").startswith(b"\x89PNG")

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "node"))
    plain = PLAIN["train"]("python", 2, STEPS, CHARACTERS)
    found = [json.loads(line) for line in cluster.read("gpt/metrics.jsonl").splitlines()]
    assert [each["loss"] for each in found] == pytest.approx(plain["losses"], abs=1e-6)
    assert [each["valid_loss"] for each in found] == pytest.approx(plain["valid_losses"], abs=1e-6)
