"""A notebook as a run: from `trainyard.run("first")` to `trainyard.finish()` or the kernel's end.

The run's job is this module in a process of its own, below trainyard/recorder.py. It reads what the
kernel prints, so it also ends with a kernel that is killed.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from trainyard import figures
from trainyard.access import user
from trainyard.access.terminal import warn
from trainyard.client import connection, history, outputs, store
from trainyard.client.errors import ClientError
from trainyard.recorder import JOB_VARIABLE
from trainyard.serving.replica_log import Both
from trainyard.tracking import run_folder

END_S = 5.0  # for the record of the end; Jupyter kills a kernel that takes longer

_ends: dict[int, Any] = {}  # what ends the run of a process (not of its forks) with an exit code


def run(name: str, stack: str | None = None) -> None:
    """Begin a run of this notebook, in place of an earlier one; if it cannot, a line says why."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    try:
        if run_folder.RUN_VARIABLE in os.environ or shell is None:
            raise ClientError("only a notebook needs it: a job is a run already")
        finish()
        _begin(shell, name, stack)
    except Exception as error:  # the cells go on
        warn(f"trainyard.run: {' '.join(str(error).split())}")


def finish(code: int = 0) -> None:
    """End the run of this notebook, if it has one; FAILED with a code of 1."""
    if end := _ends.pop(os.getpid(), None):
        end(code)


def _begin(shell: Any, run: str, stack: str | None) -> None:
    with ExitStack() as begun, tempfile.TemporaryFile() as log:
        found = begun.enter_context(connection.to(outputs.read(stack))).outputs
        files = store.open_store(found)
        jobs = run_folder.whole_records(files.get(f"{history.valid_name(run)}/{run_folder.JOBS}"))
        job = jobs[-1] if jobs else {"ended": ""}
        other = run_folder.NOTEBOOK not in job.get("command", ())
        if "ended" not in job and (other or run_folder.is_open_notebook(job)):
            raise ClientError(f"a job of run {run!r} has no end yet: take another name")
        facts = {"job_submission_id": f"notebook-{secrets.token_hex(6)}", "user": user.name()}
        variables = {
            run_folder.STORAGE_VARIABLE: found.storage_url,
            run_folder.RUN_VARIABLE: run,
            JOB_VARIABLE: json.dumps({"metadata": facts}),
        }
        if found.access_key:  # of the stack's store, for the recorder alone
            keys = {"ACCESS_KEY_ID": found.access_key, "SECRET_ACCESS_KEY": found.secret_key}
            more = {"ENDPOINT_URL": found.object_store_endpoint, "REGION": "", "SESSION_TOKEN": ""}
            variables |= {f"AWS_{key}": value for key, value in (keys | more).items()}
        file = Path(os.environ.get("JPY_SESSION_NAME", "IPython")).name
        command = [sys.executable, "-m", run_folder.NOTEBOOK, file]
        process = subprocess.Popen(
            [sys.executable, "-m", "trainyard.recorder", *command],
            bufsize=0,
            encoding="utf-8",
            errors="replace",
            cwd=Path(__file__).parents[2],
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Jupyter kills the kernel's process group
        )
        opened = begun.pop_all()
    streams = sys.stdout, sys.stderr
    figures.begin(files, run)

    def keep_code(_: object = None) -> None:
        cells = "\n\n".join(shell.history_manager.input_hist_raw[1:])
        if not any(secret in cells for secret in found.secrets):
            figures.keep(lambda kept: kept.show("cells", cells, 0))

    def end(code: int) -> None:
        sys.stdout, sys.stderr = streams
        shell.events.unregister("post_run_cell", keep_code)
        keep_code()  # this cell
        figures.finish()
        with opened, suppress(OSError, subprocess.TimeoutExpired):
            process.communicate(chr(code), END_S)  # the last byte, if the kernel is not killed

    sys.stdout, sys.stderr = (Both(each, process.stdin) for each in streams)
    shell.events.register("post_run_cell", keep_code)
    _ends[os.getpid()] = end
    atexit.register(lambda: finish(int(not shell.last_execution_succeeded)))


def main() -> int | str:
    """Copies what a kernel prints; returns its exit code."""
    code: int | str
    code = killed = "the kernel was killed"
    while piece := os.read(0, 2**16):
        os.write(1, text := piece.rstrip(b"\0\1"))
        code = killed if piece == text else piece[-1]
    return code


if __name__ == "__main__":
    sys.exit(main())
