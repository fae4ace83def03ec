"""The job chargpt with a worker that is killed once its first epoch is stored: for test_chargpt.py.

The file FAULT says that the kill is still to come.
"""

import os
import signal
from pathlib import Path

from trainyard.jobs import chargpt

learn = chargpt.train_worker


def train_worker(session):
    from trainyard.resume import checkpoints

    report, fault = checkpoints.report, Path(os.environ["FAULT"])

    def report_and_fall_over(*arguments, **options):
        report(*arguments, **options, wait=fault.exists())
        if fault.exists():
            fault.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoints.report = report_and_fall_over
    learn(session)


chargpt.train_worker = train_worker
if __name__ == "__main__":
    chargpt.main()
