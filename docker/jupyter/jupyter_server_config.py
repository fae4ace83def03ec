"""The notebook's server: the token in its file gives all rights, and nothing works without it.

The token is a file because a command line or an environment would show it to `docker inspect`.
"""

import os
import subprocess
import sys
from pathlib import Path

# A container's are always there, those of a process are where Ray's token is.
FILES = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "/etc/trainyard/ray-token")).parent
TOKEN_FILE = FILES / "jupyter-token"

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - Jupyter defines it

try:
    token = TOKEN_FILE.read_text().strip()
except OSError as error:
    sys.exit(f"error: no token in {TOKEN_FILE} ({error.strerror}): mount a file that has one")
if not token:  # which Jupyter takes for: let everybody in
    sys.exit(f"error: the token in {TOKEN_FILE} is empty: write one into it")

c.IdentityProvider.token = token
c.ServerApp.ip = "0.0.0.0"  # noqa: S104 - what of the container is reached is not decided here
c.ServerApp.open_browser = False
c.ServerApp.root_dir = "/var/lib/trainyard/workspace"
c.ServerApp.terminado_settings = {"shell_command": ["/bin/bash"]}
c.FileContentsManager.delete_to_trash = False  # a volume has no trash that anybody would empty

# `train` and `trainyard.run` in kernels and terminals. A process has both, and a private file;
# in a container they are those of train.sh.
if (outputs := FILES / "outputs.json").exists():
    os.environ["TRAINYARD_OUTPUTS"] = str(outputs)
    if outputs.stat().st_mode & 0o077:
        mine = Path.home() / ".trainyard-outputs.json"
        subprocess.run(["install", "-m", "0600", outputs, mine], check=True)
        os.environ |= {"TRAINYARD_OUTPUTS": str(mine), "PYTHONPATH": "/usr/local/lib/trainyard"}
