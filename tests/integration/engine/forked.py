"""Runs the engine's commands in forks of this process, which has imported all of it once.

Reads one request a line, `{"argv", "environment", "output", "moment"}`, and answers each with the
exit status. With a moment the fork is killed (SIGKILL) at that one of the moments just before and
just after anything becomes visible outside: a rename or a removal of a file, by the engine or by a
provider.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import engine.operation  # noqa: F401 - what a command imports late
from engine import cli, crypto

crypto.ROUNDS = 10  # a key that is hard to guess takes a moment, for every stack


def _die_at(moment):
    lock = threading.Lock()
    seen = 0

    def count():
        nonlocal seen
        with lock:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(real):
        def call(*arguments, **options):
            count()
            result = real(*arguments, **options)
            count()
            return result

        return call

    Path.replace = counted(Path.replace)
    Path.unlink = counted(Path.unlink)


def main():
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(output, descriptor)
            os.environ |= request["environment"]
            if request["moment"]:
                _die_at(request["moment"])
            try:
                code = cli.main(request["argv"])
                sys.stdout.flush()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 99
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(code, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
