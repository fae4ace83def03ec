"""Builds the programs that are named, or all: see the package."""

import signal
import sys

from tests import go_tools


def main(asked: list[str]) -> int:
    """Build them, one after the other, since Go takes all processors for each."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: Go is ended too
    known = go_tools.names()
    if unknown := sorted({*asked} - {*known}):
        sys.stderr.write(f"error: {', '.join(unknown)}: not among {', '.join(known)}\n")
        return 2
    for name in asked or known:
        try:
            go_tools.obtain(name)
        except go_tools.GoToolError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    return 0


sys.exit(main(sys.argv[1:]))
