"""Runs `train` in forks of this process, which has imported all commands' modules once.

Reads one request a line, `{"arguments", "environment", "output", "errors"}`, and answers each with
two lines: the fork's process id, and its exit status. A command starts in 0.1 s of processor time
instead of 2.
"""

# ruff: noqa: F401 - what is imported here and not used is what commands import late

import json
import os
import sys

import aiohttp
import ray.job_submission

import trainyard.client.drill.procedure
import trainyard.client.results
import trainyard.client.scripts
import trainyard.client.serve
import trainyard.client.tunnel
import trainyard.client.unreachable
import trainyard.client.waiting
import trainyard.store.s3_requests
from trainyard.client import cli


def main() -> None:
    """Answers requests until the last one; a fork leaves by its command's end."""
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
            cli.main()
            return
        print(pid, flush=True)  # noqa: T201
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201


def _become(request: dict[str, object]) -> None:
    """Makes this process what the command would be in a process of its own."""
    null = os.open(os.devnull, os.O_RDONLY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = (null, *(os.open(str(request[name]), flags, 0o600) for name in ("output", "errors")))
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv = ["train", *request["arguments"]]  # type: ignore[misc]


if __name__ == "__main__":
    main()
