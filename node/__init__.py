"""Programs for machines and pods: copied there as files, so they import only each other."""

from pathlib import Path


def source_text(file: str) -> str:
    """Return the text of a file here, such as `ending.py`, which is to be a file elsewhere."""
    return Path(__file__).with_name(file).read_text(encoding="utf-8")
