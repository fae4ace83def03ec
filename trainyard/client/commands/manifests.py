"""`train manifests` and `train helm-values`: what other tools need for a stack's cluster."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.command import Stack
from trainyard.client.stack_program import name_of, options, run_here

MODULE = "infra.operate.manifests"


def manifests(
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder for one file per object (default: stdout)."),
    ] = None,
    stack: Stack = None,
) -> None:
    """Write all objects of a stack on Kubernetes as YAML, for Argo CD or Flux, without secrets."""
    run_here(MODULE, "-s", name_of(stack), *options(to=to))


def helm_values(stack: Stack = None) -> None:
    """Print values for KubeRay's Helm chart that make the stack's Ray cluster."""
    run_here(MODULE, "-s", name_of(stack), "--helm-values")
