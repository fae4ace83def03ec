"""Whether work grows with its input as it should."""

import time
from collections.abc import Callable

TRIES = 3


def growth(work: Callable[[int], object], size: int, factor: int) -> float:
    """How much more processor time of this thread a larger input takes; the best of some tries."""

    def cost(of: int) -> float:
        begun = time.thread_time()
        work(of)
        return time.thread_time() - begun

    small = min(cost(size) for _ in range(TRIES))
    return cost(size * factor) / small
