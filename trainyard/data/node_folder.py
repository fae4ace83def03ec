"""The folder for data that a node has fetched or prepared; its workers share it."""

import os
from pathlib import Path

FOLDER_VARIABLE = "TRAINYARD_DATA_DIR"
DOWNLOAD_DEADLINE_S = 1800  # for the workers that wait until the first one has fetched the data
CONNECT_S = 20.0  # a network that swallows packets must not hold the workers for minutes


def node_folder() -> Path:
    """Return the folder; it may not exist yet."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache/trainyard/data")
