"""Settings of a stack on other machines of any source: keys, commands, environment.

Deliberately absent: any look at a machine.
"""

import re
from pathlib import Path

from infra.reader import Reader

# Only such paths reach a command line there.
PLAIN_PATH = re.compile(r"(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._-]+)+")
SHOWN_COMMAND = 80  # characters of a command that a fault shows


def ssh_key_file(reader: Reader) -> Path | None:
    """Return the file of the private key; None for those of the SSH agent."""
    text = reader.text("sshKeyFile")
    if not text:
        return None
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~somebody, who is not a user of this machine
        path = Path(text)
    reader.check_path("sshKeyFile", str(path))
    return path


def setup_commands(reader: Reader) -> tuple[str, ...]:
    """Return the commands that each host runs before its environment is made."""
    key = "setupCommands"
    given = reader.array(key, "write a list of commands")
    for index, value in enumerate(given):
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            shown = value if isinstance(value, str) else str(value)
            bound = "must be a command for the host's shell"
            reader.fault(f"{key}[{index}]", shown[:SHOWN_COMMAND], bound, "write it in quotes")
    return tuple(value for value in given if isinstance(value, str))


def python_environment(reader: Reader) -> str:
    """Return the folder of a Python environment on the hosts; "" to have one made."""
    key = "pythonEnvironment"
    text = reader.text(key)
    if text and not PLAIN_PATH.fullmatch(text):
        bound = "must be an absolute path of letters, digits and . _ -"
        reader.fault(key, text, bound, "name the folder that holds bin/python")
    return text
