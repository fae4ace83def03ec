"""The notice by which the queue asks a running job to store a checkpoint and end.

It is a package at the head, of the text that the job then says: the queue can put one there by
Ray's API, and a job's workers can ask for it without a further address.
"""

PREFIX = "trainyard_yield_"  # no package of a job begins so
FOR_ANOTHER = (
    "the queue has ended this start for a job of higher priority: the job waits again, and goes "
    "on from its checkpoint"
)
FOR_GOOD = (
    "the queue has stopped this job: {}; submitted again, its run goes on from its checkpoint"
)


def is_said(log: str) -> bool:
    """Return whether a job's log says that the queue has ended it."""
    return FOR_ANOTHER in log or FOR_GOOD.partition(":")[0] in log


def package(attempt: str) -> str:
    """Return the name of the package for a submission id."""
    return f"{PREFIX}{attempt}.zip"
