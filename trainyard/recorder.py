"""Runs a job's command on its node, and records it: so any script is a run, as a training is.

    python -m trainyard.recorder python plain.py --width 3

The command has this process's environment, standard output and signals, and gives its exit code.
What it leaves in $TRAINYARD_OUTPUT goes to the store when it has ended, and small files that it has
made in its working folder too. The log is there before, again and again. A store that is away
costs a job seconds, and never its result. For the run's files see trainyard/tracking/run_folder.py.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.housekeeping import housekeeping

JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of Ray: the job's metadata and runtime environment
LOOK_S = 1.0  # between two looks at the log, which note when its lines came
FIRST_LOG_S, LONGEST_S = 5.0, 60.0  # until the log is stored for the first time; then ever longer
STORE_S = "10"  # for which a job waits for its store, each time
AWAITED = (signal.SIGCHLD, signal.SIGTERM)
HIDDEN = (".", "__pycache__")

Files = Mapping[str, os.stat_result]


def main(command: Sequence[str]) -> int:
    """Runs a command and records it; returns its exit code."""
    storage, run = (os.environ.get(f"TRAINYARD_{name}") for name in ("STORAGE_URL", "RUN"))
    if not storage or not run:
        os.execvp(command[0], [*command])  # noqa: S606 - in place of this process
    _remove_old()
    output = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-"))
    job = json.loads(os.environ.get(JOB_VARIABLE, "{}"))
    environment = job.setdefault("runtime_env", {})
    if address := os.environ.get("RAY_ADDRESS"):
        # Helpers of Ray in a job's workers look for their cluster, and fail if a machine has two.
        environment.setdefault("env_vars", {}).setdefault("RAY_ADDRESS", address)
    here = Path.cwd() if environment.get("working_dir") else None
    before = _files(here)
    # Ray tells the process group to stop, and so the command too, which decides what that means.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    process = subprocess.Popen(
        command,
        env=os.environ | {"TRAINYARD_OUTPUT": str(output), JOB_VARIABLE: json.dumps(job)},
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),  # noqa: PLW1509 - no threads
    )
    os.environ["TRAINYARD_STORE_PATIENCE_S"] = STORE_S
    pause, record, stored = FIRST_LOG_S, None, time.monotonic()
    with housekeeping("the store has no record of this job"):
        from trainyard.tracking.job_record import JobRecord  # noqa: PLC0415 - the command starts first

        record = JobRecord(storage, run, command, job)
        record.begin(before)
    while (code := process.poll()) is None:
        heard = signal.sigtimedwait(AWAITED, LOOK_S)
        if heard is None and time.monotonic() - stored < pause:
            if record:
                record.look()
            continue
        if heard is None:
            pause, stored = min(2 * pause, LONGEST_S), time.monotonic()
        if record and (heard is None or heard.si_signo == signal.SIGTERM):
            with housekeeping("the store does not know how far this job is"):
                (record.stopping if heard else record.log)()
    made = {name: now for name, now in _files(here).items() if _differs(before.get(name), now)}
    if record:
        with housekeeping("the store does not have all of this job"):
            record.end(code, output, made)
    shutil.rmtree(output, ignore_errors=True)
    if code < 0:  # ends as the command did
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.kill(os.getpid(), -code)
    return code


def _files(top: Path | None) -> Files:
    """Return the regular files of a folder, without hidden ones and byte code."""
    found: dict[str, os.stat_result] = {}
    if top is None:
        return found
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        for path in (Path(folder, name) for name in names if not name.startswith(HIDDEN)):
            with suppress(OSError):  # removed meanwhile
                if path.is_file() and not path.is_symlink():
                    found[path.relative_to(top).as_posix()] = path.stat()
    return found


def _differs(before: os.stat_result | None, now: os.stat_result) -> bool:
    return before is None or (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns)


def _prefix() -> str:
    return f"trainyard-output-{os.getuid()}-"


def _remove_old() -> None:
    """Removes folders that recorders of this user left when they were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
        pid = folder.name.removeprefix(_prefix()).partition("-")[0]
        if folder.lstat().st_uid == os.getuid() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
