"""train_fault_tolerant.py with a worker that falls over when it is told to: for test_food11.py.

Faults are files in the folder FAULTS, such as `kill-0`: the worker that has stored this epoch's
checkpoint removes the file and has the fault.

kill      SIGKILL to itself
hang      trains no further
"""

import os
import signal
import time
from pathlib import Path

from trainyard.jobs.food11 import train_fault_tolerant

learn = train_fault_tolerant.train_func


def train_func(config):
    from trainyard.resume import checkpoints

    report = checkpoints.report

    def report_and_fall_over(metrics, *arguments, **options):
        report(metrics, *arguments, **options)
        for kind in ("kill", "hang"):
            fault = Path(os.environ["FAULTS"], f"{kind}-{metrics.get('epoch')}")
            if not fault.exists():
                continue
            fault.unlink()
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                time.sleep(1)

    checkpoints.report = report_and_fall_over
    learn(config)


train_fault_tolerant.train_func = train_func
if __name__ == "__main__":
    train_fault_tolerant.main()
