"""`train cluster-file`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack
from trainyard.client.console import say
from trainyard.client.errors import ClientError, writing


def cluster_file(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="File to write or replace (mode 0600)."),
    ] = Path("ray_cluster_config.yaml"),
    provider: Annotated[
        str | None,
        typer.Option(
            help="gcp: `ray up` starts machines on Google Cloud (default: the stack's machines)."
        ),
    ] = None,
    project: Annotated[str, typer.Option(help="Id of the Google Cloud project, with gcp.")] = "",
    zone: Annotated[str, typer.Option(help="Zone of all machines, with gcp.")] = "us-central1-a",
    cidr: Annotated[str, typer.Option(help="Addresses that may log in, with gcp.")] = "",
    name: Annotated[str, typer.Option(help="Name of the cluster, with gcp.")] = "trainyard",
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Write the stack's machines as a cluster file for Ray's own launcher, `ray up`.

    With --provider gcp: autoscaled groups of CPU, GPU and TPU machines on Google Cloud.
    """
    if provider is not None:
        if provider != "gcp":
            raise ClientError(
                f"--provider {provider[:80]!r} is not known: give gcp, or no provider for the "
                "machines of a stack"
            )
        from trainyard.quickstart import gcp

        cluster = gcp.GcpCluster(project=project, zone=zone, cidr=cidr, name=name)
        say(f"wrote {' and '.join(str(path) for path in gcp.write(cluster, output))}")
        say(f"this cluster has no end and no budget: it costs money until `ray down -y {output}`")
        return
    stack_outputs = contract.read(stack, outputs)
    if not stack_outputs.ray_cluster_file:
        raise ClientError(
            f"stack {stack_outputs.stack!r} has no cluster file: only a stack on SSH hosts "
            "that leaves Ray to Ray's own launcher has one; name it with --stack"
        )
    head = stack_outputs.nodes[0].name
    say(f"Generating ray config file {output} using IP from {head} instance")
    with writing(output, "give another file with --output"):
        output.touch(mode=0o600)
        output.chmod(0o600)
        output.write_text(stack_outputs.ray_cluster_file, encoding="utf-8")
