"""Faults on purpose: `train drill` provokes one and compares the run with an undisturbed one."""

from enum import StrEnum


class Fault(StrEnum):
    """A kind of fault."""

    WORKER_LOSS = "worker-loss"
    STORE_LOSS = "store-loss"
    HEAD_LOSS = "head-loss"
    PREEMPT = "preempt"
