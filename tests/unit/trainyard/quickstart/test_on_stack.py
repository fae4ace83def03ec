"""A training as a job of a stack: what is sent, and what comes back from its store."""

import json
from pathlib import Path

import pytest
from ray import cloudpickle
from ray.train import ScalingConfig

from tests import ui_stack
from trainyard.client import api, jobs, outputs
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.quickstart import on_stack
from trainyard.quickstart.on_stack import OUTCOME
from trainyard.quickstart.syncer import initialize_ray_with_syncer
from trainyard.store.objects import FolderStore
from trainyard.tracking.run_folder import SUMMARIES

CHECKPOINT = "checkpoint_2026-1_0.7"  # as Ray names it
WORK = (dict, (), {"scaling_config": ScalingConfig(num_workers=2)})


@pytest.fixture
def stack(tmp_path, monkeypatch):
    """A project, and a stack whose job leaves a checkpoint; returns the syncer, store and calls."""
    source, storage = tmp_path / "project/src", tmp_path / "storage"
    source.mkdir(parents=True)
    (source / "loops.py").write_text("STEPS = 3\n")
    (tmp_path / "project/requirements.txt").write_text("einops==0.8.1\n")
    file = ui_stack.write_outputs(tmp_path / "outputs.json", "http://127.0.0.1:1", storage)
    monkeypatch.setenv(outputs.FILE_VARIABLE, str(file))
    place, sent, known = FolderStore(storage), [], []

    def submit(job, **options):
        folder = Path(options["working_dir"])
        assert Path(job).parent == folder
        assert cloudpickle.loads((folder / on_stack.WORK).read_bytes()).args == WORK
        packages = json.loads(Path(options["runtime_env"]).read_text())["pip"]
        sent.append(((folder / "loops.py").read_text(), packages))
        outcome = [[{"loss": 0.5}, f"{storage}/first", f"{storage}/first/{CHECKPOINT}", ""]]
        place.write(f"first/{CHECKPOINT}/state.pt", b"weights")
        place.write(f"first/{OUTCOME}", json.dumps(outcome).encode())
        return {"status": "SUCCEEDED"}

    monkeypatch.setattr(api, "submit", submit)
    monkeypatch.setattr(jobs, "newest", lambda *_: known[0] if known else None)
    folders = (source.parent, source, source / "none.yaml", tmp_path / "here")
    return initialize_ray_with_syncer(*folders, "dev"), place, sent, known


def test_code_and_packages_go_and_checkpoints_come(stack, tmp_path):  # C3 C5 C6 C22
    syncer, place, sent, known = stack
    found = syncer.run("first", *WORK)
    assert sent == [("STEPS = 3\n", ["einops==0.8.1"])]
    assert found == [({"loss": 0.5}, "first", f"first/{CHECKPOINT}", "")]
    assert (tmp_path / "here" / found[0][2] / "state.pt").read_bytes() == b"weights"
    known.append(Job(status=Status.RUNNING, submission_id="job"))
    with pytest.raises(ClientError, match="first is on the stack as job: `train stop first` first"):
        syncer.clean("first")
    known[:] = [Job(status=Status.SUCCEEDED)]
    place.write(summary := f"{SUMMARIES}/first", b"{}")
    syncer.clean("first")
    assert (place.listed("first"), (tmp_path / "here/first").exists()) == ({}, False)
    assert place.get(summary) is None
    # A training that ended without us is collected, and the next start trains.  C13
    place.write(f"first/{OUTCOME}", b'[[{"loss": 1}, "first", "", ""]]')
    assert (syncer.run("first", *WORK), len(sent)) == ([({"loss": 1}, "first", "", "")], 1)
    assert (syncer.run("first", *WORK), len(sent)) == (found, 2)


def test_what_the_stack_cannot_hold_or_train_is_one_message(stack, monkeypatch):
    syncer, place, sent, _ = stack
    large = (dict, (), {"scaling_config": ScalingConfig(num_workers=2, use_gpu=True)})
    with pytest.raises(ClientError, match=r"asks for .*GPU 1.*ask for less in ScalingConfig, or "):
        syncer.run("first", *large)
    assert sent == []
    for content in (b"[", b"[3]", b'[[3, "", "", ""]]', b'[[{}, "/etc", "", ""]]', b"[" * 100_000):
        monkeypatch.setattr(api, "submit", lambda *_, **__: {"status": "SUCCEEDED"})
        place.write(f"first/{OUTCOME}", content)
        with pytest.raises(ClientError, match="of first is not that of a training"):
            syncer.run("first", *WORK)
    monkeypatch.setattr(api, "submit", lambda *_, **__: {"status": "FAILED"})
    with pytest.raises(ClientError, match=r"failed on stack .*: `train logs first` says why"):
        syncer.run("first", *WORK)
