"""Sums up the downloads of uv, which shows its bars on a terminal only.

    python -m infra.downloads uv pip install …

It runs before anything is installed. On a terminal uv takes its place. Elsewhere other lines of uv
are passed on, except its list of all packages at the end.
"""

import os
import re
import select
import subprocess
import sys
import time

from trainyard.access import terminal

PERIOD_SECONDS = 10.0
DOWNLOAD = re.compile(r"\s*(Downloading|Downloaded) (\S+)(?: \((\d[\d.]*)\s*([KMG])iB\))?")
MEBIBYTES = {"K": 1 / 1024, "M": 1, "G": 1024}


class Downloads:
    """The downloads so far."""

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}  # MiB, by package
        self._done: set[str] = set()

    def take(self, line: str) -> bool:
        """Note a line of uv; return whether it is of a download or of the list at the end."""
        found = DOWNLOAD.match(line)
        if found is None:
            return line.startswith(" + ")
        if found[1] == "Downloaded":
            self._done.add(found[2])
        else:
            size = float(found[3]) * MEBIBYTES[found[4]] if found[3] else 0.0
            self._sizes[found[2]] = size
        return True

    def __str__(self) -> str:
        """Return the progress in packages and MiB, without small ones, which uv does not name."""
        if not self._sizes:
            return ""
        done = sum(self._sizes.get(name, 0) for name in self._done)
        total = sum(self._sizes.values())
        packages = f"{len(self._done)} of {len(self._sizes)} packages"
        return f"downloaded {packages}, {done:.0f} of {total:.0f} MiB"


def main(command: list[str]) -> int:
    """Run a command of uv; return its exit code."""
    if os.isatty(2):
        os.execv(command[0], command)  # noqa: S606
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None  # noqa: S101 (for the type checker)
    source = process.stdout.fileno()
    downloads, rest, shown = Downloads(), "", ""
    due = time.monotonic() + PERIOD_SECONDS
    while True:
        ready, _, _ = select.select([source], [], [], max(0.0, due - time.monotonic()))
        data = os.read(source, 65536) if ready else b""
        *lines, rest = (rest + data.decode(errors="replace")).split("\n")
        for line in lines:
            if not downloads.take(line):
                terminal.say(line)
        ended = bool(ready) and not data
        if ended or time.monotonic() >= due:
            # While a large one goes on nothing changes: the line shows that it is not over.
            if (text := str(downloads)) and not (ended and text == shown):
                terminal.say(text)
                shown = text
            due = time.monotonic() + PERIOD_SECONDS
        if ended:
            return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
