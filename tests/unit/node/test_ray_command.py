"""The program of Ray's nodes."""

import re
import subprocess
import sys

from node import ray_command


def test_a_node_loads_no_command_that_it_does_not_need():
    # `ray` itself loads all, with pandas and FastAPI.
    words = [sys.executable, "-X", "importtime", ray_command.__file__, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"ray, version [\d.]+\n", done.stdout)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ray.scripts.scripts" in loaded
    assert not loaded & {"pandas", "fastapi", "ray.serve", "ray.util.state", "aiohttp"}
