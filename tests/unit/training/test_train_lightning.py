"""What each process of train_lightning computes, and its large model: on CPUs."""

import os
import re
import sys

import torch

from tests import ran

# Each of two processes notes its own gradients before DDP averages them, those that the optimizer
# gets, and the weights after the step. Then a process trains the large model. In this order,
# because a process whose threads have computed cannot fork.
TRAINED = """
import sys
import torch
from hydra import compose, initialize_config_dir
from trainyard.client import scripts
from trainyard.jobs import train_lightning as job

class Noting(job.Digits):
    def training_step(self, batch, number):
        loss = super().training_step(batch, number)
        own = torch.autograd.grad(loss, list(self.parameters()), retain_graph=True)
        self.noted = {"own": own}
        return loss

    def on_before_optimizer_step(self, optimizer):
        self.noted["synced"] = [each.grad.clone() for each in self.parameters()]

    def on_train_batch_end(self, *_):
        self.noted["weights"] = [each.detach().clone() for each in self.parameters()]
        torch.save(self.noted, f"noted-{self.global_rank}.pt")

def train(*words):
    with initialize_config_dir(str(scripts.JOBS / "config"), version_base="1.3"):
        config = compose("train_lightning", ["train.epochs=1", *words])
    job.main.__wrapped__(config)

of_each, job.Digits = job.Digits, Noting
train("devices=2", "data.limit=16", "train.batch_size=8", "model.hidden_dims=[16]")
job.Digits = of_each
train("devices=1", "data.limit=64", *sys.argv[1:])
"""
# As in document 001, on one device.
LARGE = "accelerator=tpu model=mlp model.hidden_dims=[4096,4096,4096,4096] train.refresh_rate=1"


def test_processes_step_with_the_mean_of_their_gradients_and_a_large_model_trains(tmp_path):
    script = tmp_path / "trained.py"
    script.write_text(TRAINED)
    # Idle threads of three processes would take the processors from each other.
    # Lightning leaves an empty folder there.
    env = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    out = ran.output([sys.executable, script, *LARGE.split()], cwd=tmp_path, env=env)

    assert "parameters on 2 x cpu" in out  # B21
    notes = [torch.load(tmp_path / f"noted-{rank}.pt") for rank in (0, 1)]
    for part in range(len(notes[0]["own"])):
        own, synced, weights = ([note[name][part] for note in notes] for name in notes[0])
        assert not torch.allclose(own[0], own[1])  # they saw other digits
        torch.testing.assert_close(synced[0], sum(own) / 2)
        assert torch.equal(synced[0], synced[1])
        assert torch.equal(weights[0], weights[1])

    (count,) = re.findall(r"([\d,]+) parameters on 1 x tpu", out)  # B22
    assert 50e6 < int(count.replace(",", "")) < 55e6
    assert "this node counts TPUs and has no torch_xla: its CPUs compute" in out
    assert re.search(r"Epoch 0: 100%.* 1/1 ", out)
