"""Run the fake cloud until SIGTERM or Ctrl-C.

It first prints the variables with which a program uses it, one a line: LAMBDA_API_URL,
LAMBDA_API_KEY and TRAINYARD_LAMBDA_PACE. /_fake/ shows its account (see server.py).
"""

import argparse
import contextlib
import signal
import sys
import threading

from tests.fakes.lambda_cloud.cloud import FakeCloud


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.lambda_cloud", description=__doc__)
    parser.add_argument("--pace", type=float, help="factor of the bounds; default: no bounds")
    parser.add_argument("--boot-seconds", type=float, default=0.0)
    parser.add_argument("--machines", action="store_true", help="network namespaces with sshd")
    given = vars(parser.parse_args())
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with contextlib.ExitStack() as stack:
        if given.pop("machines"):
            from tests.fakes.machines import Machines  # needs root and Debian

            given["machines"] = stack.enter_context(Machines())
        cloud = stack.enter_context(FakeCloud(**given))
        for name, value in cloud.environment().items():
            print(f"{name}={value}", flush=True)  # noqa: T201
        ended.wait()


sys.exit(main())
