"""`train up`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client import stack_program as program
from trainyard.client.command import Stack
from trainyard.client.console import print_facts, warn
from trainyard.client.errors import ClientError

RESUMING_S = 5.0  # for which the cluster is asked for runs; without an answer they are not named


def up(
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Do only what this file of `preview` holds.")
    ] = None,
    policy_pack: program.Pack = None,
    policy_pack_config: program.Levels = None,
    find_ports: Annotated[
        bool,
        typer.Option("--find-ports", help="First set a portOffset with which all ports are free."),
    ] = False,
    force: program.NewHead = False,
    yes: program.Unasked = False,
    stack: Stack = None,
) -> None:
    """Bring a stack up, or change it as its settings say; show its addresses."""
    name = program.name_of(stack)
    from trainyard.client import losses

    if force:
        losses.agree_to_a_new_head(name, yes=yes)
    if find_ports:
        program.run_here("infra.operate.find_ports", "-s", name)
    given = program.options(
        plan=plan, policy_pack=policy_pack, policy_pack_config=policy_pack_config
    )
    resuming = losses.look(name, RESUMING_S).variables
    forced = program.FORCE if force else {}
    program.run(program.LAUNCH, "up", "-s", name, *given, variables=resuming | forced)
    _show_addresses(name)


def _show_addresses(stack: str) -> None:
    from trainyard.client import info, serve

    try:
        outputs = contract.of_state(stack)
    except ClientError as error:
        warn(f"warning: cannot show the addresses: {error}")
        return
    try:
        if outputs.serve_url and outputs.storage_url and not outputs.keeps_files_away:
            serve.deploy_again(outputs)
    except ClientError as error:
        warn(f"warning: services that the head has lost are not deployed again: {error}")
    print_facts("", info.addresses(outputs))
    print_facts("next:", info.first_steps(outputs))
