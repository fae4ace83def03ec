"""Properties of a program for the process runtime."""

import sys
from collections.abc import Mapping
from typing import Any

SERVE = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]


def web_program(
    folder: str, port: int, mark: Mapping[str, str], /, **changes: Any
) -> dict[str, Any]:
    """A web server in a stack's folder; `changes` replace or add properties."""
    return {
        "folder": folder,
        "name": "web",
        "command": [*SERVE, str(port)],
        "environment": {},
        "files": {},
        "secrets": {},
        "folders": [],
        "stopSeconds": 2.0,
        "ports": [{"number": float(port), "setting": "testPort"}],
        "health": [f"http://127.0.0.1:{port}/"],
        "startTimeout": 20.0,
        "mark": dict(mark),
        **changes,
    }
