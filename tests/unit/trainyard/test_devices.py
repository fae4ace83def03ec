"""Lightning's name of an accelerator, without making a device."""

import importlib.util

import pytest
import torch

from trainyard import devices


@pytest.mark.parametrize(("has_chips", "expected"), [(True, "tpu"), (False, "cpu")])
def test_a_tpu_is_named_without_a_device_of_it(monkeypatch, has_chips, expected):
    # Importing torch_xla, which is not here, would fail: nothing is made in this process.
    found = object() if has_chips else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    assert devices.lightning_name("tpu") == expected


@pytest.mark.parametrize(("has_gpu", "line"), [(True, "accelerator=gpu uses it\n"), (False, "")])
def test_a_gpu_that_stays_idle_is_named(has_gpu, line, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert devices.find("cpu").type == "cpu"
    assert capsys.readouterr().out.partition("; ")[2] == line
