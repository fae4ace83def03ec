"""Serves a run's checkpoint on the cluster, as an application of Ray Serve."""

from typing import Any

TOKEN_FILE_VARIABLE = "TRAINYARD_SERVE_TOKEN_FILE"  # noqa: S105 - a name; of every node
NEEDED = ("architecture", "classes", "image_side", "mean", "std", "file", "prefix")


def check_description(model: dict[str, Any]) -> None:
    """Refuses a model that cannot be served because its job describes too little of it.

    Args:
        model: its description in a checkpoint's manifest (trainyard/checkpoints.py).

    Raises:
        ValueError: names the missing keys, and where to write them.
    """
    if missing := [name for name in NEEDED if name not in model]:
        raise ValueError(
            f"the checkpoint's manifest does not have {', '.join(missing)}: give them to "
            "session.report, as DESCRIPTION of training/alexnet.py, and train an epoch"
        )
