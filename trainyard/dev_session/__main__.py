"""The session's job: `python -m dev_session ID [--debug] [--idle] -- python my_job.py --epochs 1`.

Keeps the copy of the code, receives the client's messages and passes orders on to the warm process.
Ends when the client says so, or is silent for a minute.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from . import messages, patches, trees

POLL_S = 0.05
LEASE_S = 60.0
END_S = 5.0
STORAGE_VARIABLE, RUN_VARIABLE = "TRAINYARD_STORAGE_URL", "TRAINYARD_RUN"
RESULTS = ".dev"  # below the store's address; `train runs` does not list it


class SessionJob:
    """One session: `debug` has each run wait for a debugger, `idle` runs nothing until told to.

    `run` is the number of the latest run.
    """

    def __init__(self, session: str, command: list[str], *, debug: bool, idle: bool) -> None:
        self.run = 0
        self._idle = idle
        self._session = session
        self._command = command
        self._debug = debug
        self._overlay: dict[str, patches.Patch | None] = {}
        self._tree = trees.of_node(session)
        self._storage = os.environ.get(STORAGE_VARIABLE, "")
        self._warm = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.warm", session], stdin=subprocess.PIPE
        )
        self._tree.place()
        self._mailbox = messages.Mailbox(session)

    def serve(self) -> None:
        """Runs the job, and reruns it at each message that says so."""
        if not self._idle:
            self._order(self._command)
        heard = time.monotonic()
        while time.monotonic() - heard < LEASE_S:
            message = self._mailbox.take()
            if message is None:
                if self._warm.poll() is not None:
                    sys.exit("error: the warm process has ended: start the session again")
                time.sleep(POLL_S)
                continue
            header, changes = patches.unpack(message)
            if header["kind"] == "end":
                return
            before = self.run
            if header["kind"] == "run":
                self._again(header.get("arguments"), changes)
            self._keep_records(before)  # the next run does not wait for it
            heard = time.monotonic()
        print(f"heard nothing from the client for {LEASE_S:g} s: the session ends", flush=True)  # noqa: T201

    def close(self) -> None:
        """Ends the run and the warm process, and removes the session's files."""
        assert self._warm.stdin is not None  # noqa: S101 - Popen was given PIPE
        self._warm.stdin.close()
        try:
            self._warm.wait(END_S)
        except subprocess.TimeoutExpired:
            self._warm.kill()
            self._warm.wait()
        self._keep_records(self.run)
        self._mailbox.clear()
        self._tree.remove()
        if self._storage:
            self._remove_results()

    @property
    def _results(self) -> str:
        return f"{self._storage}/{RESULTS}/{self._session}"

    def _keep_records(self, number: int) -> None:
        """Has the session's own run show the records and figures of one of its runs."""
        name = os.environ.get(RUN_VARIABLE)
        if not (self._storage and name and number):
            return
        from trainyard.housekeeping import housekeeping  # noqa: PLC0415 - other folders come first
        from trainyard.store.objects import open_url  # noqa: PLC0415
        from trainyard.tracking.run_folder import JOBS, LOGGED  # noqa: PLC0415

        with housekeeping("the session's run lacks records"):
            made = open_url(f"{self._results}/{name}-{number}")
            kept = open_url(f"{self._storage}/{name}")
            mine, old = (
                {n for n in each.sizes() if "/" not in n or n.startswith(f"{LOGGED}/")} - {JOBS}
                for each in (made, kept)
            )
            for each in mine:
                kept.write(each, made.read(each))
            kept.delete(*(old - mine))

    def _remove_results(self) -> None:
        from pyarrow import fs  # noqa: PLC0415 - slow

        # With pyarrow, like Ray: it leaves objects that mark folders.
        try:
            files, path = fs.FileSystem.from_uri(self._results)
            if files.get_file_info(path).type != fs.FileType.NotFound:
                files.delete_dir(path)
        except OSError as error:
            reason = str(error).partition("\n")[0]
            print(f"warning: {self._results} is not removed: {reason}", flush=True)  # noqa: T201

    def _again(self, arguments: list[str] | None, changes: dict[str, patches.Patch | None]) -> None:
        self._send({})  # ends the previous run: it does not see files change
        self._overlay |= changes
        try:
            self._tree.update(changes)
        except patches.PatchError as error:
            sys.exit(f"error: {error}: start the session again")
        if changes:
            self._mailbox.publish(patches.pack({}, self._overlay))
        base = self._command
        if arguments is not None:
            base = [*base[: 3 if base[1] == "-m" else 2], *arguments]
        self._order(base)

    def _order(self, command: list[str]) -> None:
        self.run += 1
        environment = {}
        if self._storage:
            environment[STORAGE_VARIABLE] = self._results
        if name := os.environ.get(RUN_VARIABLE):  # each run has its own
            environment[RUN_VARIABLE] = f"{name}-{self.run}"
        self._send(
            {"run": self.run, "command": command, "environment": environment, "debug": self._debug}
        )

    def _send(self, order: dict[str, Any]) -> None:
        assert self._warm.stdin is not None  # noqa: S101 - Popen was given PIPE
        self._warm.stdin.write(json.dumps(order).encode() + b"\n")
        self._warm.stdin.flush()


def main() -> None:
    """Runs a session to its end."""
    options, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # `train stop`
    session = SessionJob(options[0], command, debug="--debug" in options, idle="--idle" in options)
    try:
        session.serve()
    finally:
        session.close()


if __name__ == "__main__":
    main()
