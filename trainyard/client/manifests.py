"""The commands `train manifests` and `train helm-values`.

Both run the program of the stack, which this package does not import, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import repository
from trainyard.client import outputs as contract
from trainyard.client.command import Stack
from trainyard.client.errors import ClientError

MODULE = "infra.manifests"
app = typer.Typer()


@app.command()
def manifests(
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder for one file per object (default: stdout)."),
    ] = None,
    stack: Stack = None,
) -> None:
    """Write all objects of a stack on Kubernetes as YAML, for Argo CD or Flux, without secrets."""
    _run(stack, *([] if to is None else ["--to", str(to.absolute())]))


@app.command(name="helm-values")
def helm_values(stack: Stack = None) -> None:
    """Print values for KubeRay's Helm chart that make the stack's Ray cluster."""
    _run(stack, "--helm-values")


def _run(stack: str | None, *arguments: str) -> None:
    name = stack or os.environ.get(contract.STACK_VARIABLE) or contract.DEFAULT_STACK
    if not repository.is_checkout():
        raise ClientError("the Pulumi program is in the checkout only: run this with its .venv")
    command = [sys.executable, "-m", MODULE, "-C", str(contract.checkout()), "-s", name, *arguments]
    # There `-m` finds the program, whatever is on PYTHONPATH.
    done = subprocess.run(command, cwd=repository.ROOT, stdin=subprocess.DEVNULL, check=False)
    raise typer.Exit(done.returncode)
