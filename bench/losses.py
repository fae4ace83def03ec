"""Comparison of losses: a faster way of training that has other losses is wrong."""

from collections.abc import Sequence

from bench.measure import FailedError


def check_same(losses: Sequence[Sequence[float]], tolerance: float) -> None:
    """Compare the losses of all runs, at each step or epoch.

    Raises:
        FailedError: two of them differ by more than the tolerance.
    """
    for index, found in enumerate(zip(*losses, strict=True)):
        if max(found) - min(found) > tolerance:
            raise FailedError(f"losses number {index} differ by more than {tolerance}: {found}")
