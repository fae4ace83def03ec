"""The tunnel's own faults, before any host is asked; the rest is in tests/integration/training."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.client import outputs, preflight, store, tunnel
from training.client.errors import ClientError

ROOT = Path(__file__).parents[3]
SSH = outputs.Ssh(
    host="127.0.0.1", port=1, user="ubuntu", host_key="", key_file="", private_key="canary"
)


@pytest.mark.parametrize("host_key", ["", "canary", "ssh-ed25519 AAAA"])
def test_without_a_host_key_to_pin_nothing_is_connected(
    host_key: str, stack: outputs.StackOutputs
) -> None:
    message = r"output 'ssh' of stack 'dev' has no host key to pin .*make up STACK=dev"
    with (
        pytest.raises(ClientError, match=message),
        tunnel.Tunnel(replace(SSH, host_key=host_key), stack, print),
    ):
        pass


def test_results_in_a_folder_of_another_machine_are_not_looked_for_here(
    stack: outputs.StackOutputs, tmp_path: Path
) -> None:
    far = replace(stack, ssh=SSH)
    with pytest.raises(ClientError, match=r"are files, file://.* on ubuntu@127.0.0.1:1: look"):
        store.open_store(far)
    preflight.check_bucket(far)
    assert not (tmp_path / "storage").exists()


def test_a_stack_of_this_machine_costs_no_import(  # P5
    values: dict[str, Any], outputs_file: Callable[..., Path]
) -> None:
    program = (
        "import sys; sys.argv[1:] = json.loads(sys.argv[1])\n"
        "from training.client import cli\n"
        "try: cli.main()\n"
        "finally: print('asyncssh' in sys.modules)\n"
    )
    for command in ("info", "runs"):
        arguments = json.dumps([command, "--outputs", str(outputs_file(values))])
        done = subprocess.run(
            [sys.executable, "-c", "import json; " + program, arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "False", done.stderr
