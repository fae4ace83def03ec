"""The first seconds of a job's processes: Python looks for garbage less often while they import.

It would look a thousand times through all that modules have made, which stays: a sixth of the
processor time of importing PyTorch and Ray Train. A training collects as usual.
"""

import gc
import threading

THRESHOLD = 50_000  # objects made between two looks
SECONDS = 10.0
USUAL = gc.get_threshold()


def of_worker() -> None:
    """Prepares a process; Ray calls it in each of a job's (`worker_process_setup_hook`)."""
    gc.set_threshold(THRESHOLD, *USUAL[1:])
    # Not every process trains: tasks may make large garbage.
    timer = threading.Timer(SECONDS, collect_as_usual)
    timer.daemon = True
    timer.start()


def collect_as_usual() -> None:
    """Looks for garbage as often as Python does."""
    gc.set_threshold(*USUAL)
