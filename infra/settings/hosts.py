"""Settings of a stack on other machines of any source: keys, commands, environment.

Deliberately absent: any look at a machine.
"""

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from cluster.model import ABSOLUTE, Items, Meaning, matching

# Only such paths reach a command line there.
PLAIN_PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._-]+)+")


def from_home(text: str) -> str:
    """Return a path with the home folder in place of ~; an unknown user's path stays as it is."""
    try:
        return str(Path(text).expanduser()) if text else ""
    except RuntimeError:  # ~somebody, who is not a user of this machine
        return text


KeyFile = Annotated[str, ABSOLUTE, BeforeValidator(from_home)]
Commands = Annotated[
    Items[
        Annotated[
            str,
            matching(
                r"[^\0]*[^\0\s][^\0]*",
                "must be a command for the host's shell",
                "write it in quotes",
            ),
        ]
    ],
    Meaning("must be an array", "write a list of commands"),
]
EnvironmentFile = Annotated[
    str,
    matching(
        r"(?:[^\0]+\.(?:txt|yaml|yml))?",
        "must be a path that ends with .txt, .yaml or .yml",
        "name pip's requirements.txt, or an environment.yaml of conda",
    ),
]
PythonEnvironment = Annotated[
    str,
    matching(
        rf"(?:{PLAIN_PATH.pattern})?",
        "must be an absolute path of letters, digits and . _ -",
        "name the folder that holds bin/python",
    ),
]
