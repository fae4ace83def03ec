"""The faults that `train drill` knows, for the command line, which imports nothing slow."""

from enum import StrEnum


class Fault(StrEnum):
    """A kind of fault."""

    WORKER_LOSS = "worker-loss"
    STORE_LOSS = "store-loss"
    HEAD_LOSS = "head-loss"
    PREEMPT = "preempt"
