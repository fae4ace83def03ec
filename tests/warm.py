"""The warm process of a session on a node (trainyard/dev_session/warm.py), as tests order it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT


class Warm:
    """It imports neither PyTorch nor Ray, so it is warm at once."""

    def __init__(self, folder: Path, **variables: str) -> None:
        ready = "from trainyard.dev_session import warm; warm.IMPORTS = (); warm.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", ready, "aa"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        )

    def order(self, run: int, *command: str, debug: bool = False) -> None:
        """Have it begin a run."""
        order = {"run": run, "command": command, "environment": {"RUN": str(run)}, "debug": debug}
        print(json.dumps(order), file=self._process.stdin, flush=True)

    def until(self, text: str) -> str:
        """Return what it prints, up to a line with a text."""
        seen = []
        for line in self._process.stdout or ():
            seen.append(line)
            if text in line:
                return "".join(seen)
        raise AssertionError("".join(seen))

    def end(self) -> None:
        """End it, and what it runs."""
        self._process.communicate(timeout=30)
