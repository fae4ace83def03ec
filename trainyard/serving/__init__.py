"""Serves a run's checkpoint on the cluster, as an application of Ray Serve."""

from typing import Any

TOKEN_FILE_VARIABLE = "TRAINYARD_SERVE_TOKEN_FILE"  # noqa: S105 - a name; of every node
NEEDED = ("architecture", "classes", "image_side", "mean", "std", "file", "prefix")


def check_description(model: dict[str, Any]) -> None:
    """Refuses a model whose description in a manifest is too short to serve it.

    Raises:
        ValueError: names the missing keys, and where to write them.
    """
    if missing := [name for name in NEEDED if name not in model]:
        raise ValueError(
            f"the checkpoint's manifest does not have {', '.join(missing)}: give them to "
            "session.report, as DESCRIPTION of training/alexnet.py, and train an epoch"
        )
