"""The notice by which the queue asks a running job to make room for one of higher priority.

It is an empty package at the head: the queue can put one there by Ray's API, and a job's workers
can ask for it without a further address.
"""

PREFIX = "trainyard_yield_"  # no package of a job begins so


def package(attempt: str) -> str:
    """Return the name of the package for a submission id."""
    return f"{PREFIX}{attempt}.zip"
