"""Serves a run's checkpoint on the cluster, as an application of Ray Serve."""

from collections.abc import Sequence
from typing import Any

TOKEN_FILE_VARIABLE = "TRAINYARD_SERVE_TOKEN_FILE"  # noqa: S105 - a name; of every node
NEEDED = ("architecture", "classes", "image_side", "mean", "std", "file", "prefix")


REPLICA = "replica-"  # how the name of a replica's log begins
SERVICES = ".trainyard/services"  # in the store: how each is deployed
TOP = 5  # classes named for each input


def run_of(service: str) -> str:
    """Return the name of the run that has a service's jobs and the logs of its replicas."""
    return f"serve-{service}"


def likeliest(classes: Sequence[str], probabilities: Sequence[float]) -> dict[str, Any]:
    """Return the answer for one input: its likeliest class; `top` has that one and the next."""
    order = sorted(range(len(classes)), key=lambda index: -probabilities[index])
    top = [{"class": classes[index], "probability": probabilities[index]} for index in order[:TOP]]
    return top[0] | {"top": top}


def lacking(model: dict[str, Any]) -> str:
    """Return what a checkpoint's manifest lacks to serve its model without the job's script."""
    missing = ", ".join(name for name in NEEDED if name not in model)
    return missing and (
        f"the checkpoint's manifest does not have {missing}: define predict(inputs) in the job's "
        "script and submit the run again (docs/serve.md)"
    )
