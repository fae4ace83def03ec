"""The accelerators of train_model: a node's own, or a CPU where its chips are only counted."""

import importlib.util

import torch

from trainyard.errors import JobError


def find(name: str) -> torch.device:
    """Return the first device of a kind (cpu, gpu or tpu) that this process may use.

    Raises:
        JobError: the kind does not exist.
    """
    if name == "cpu":
        if torch.cuda.is_available():
            print("a GPU stays idle: accelerator=cpu says so; accelerator=gpu uses it", flush=True)  # noqa: T201
        return torch.device("cpu")
    if name == "gpu":
        return torch.device("cuda" if torch.cuda.is_available() else _counted("GPU", "CUDA"))
    if name == "tpu":
        if importlib.util.find_spec("torch_xla") is None:
            return torch.device(_counted("TPU", "torch_xla"))
        import torch_xla  # noqa: PLC0415 - only TPU hosts have it

        return torch.device(torch_xla.device())
    raise JobError(f"accelerator {name!r} is not cpu, gpu or tpu: choose one of these")


def lightning_name(name: str) -> str:
    """Return Lightning's name for the kind of `find`."""
    if name == "tpu" and importlib.util.find_spec("torch_xla") is not None:
        return "tpu"  # makes no device here: the workers could not make theirs
    return {"cpu": "cpu", "cuda": "gpu"}[find(name).type]


def _counted(kind: str, missing: str) -> str:
    print(f"this node counts {kind}s and has no {missing}: its CPUs compute", flush=True)  # noqa: T201
    return "cpu"
