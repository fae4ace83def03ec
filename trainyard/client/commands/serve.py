"""The commands `train serve` and `train services`."""

from typing import Annotated

import typer

from trainyard.access.terminal import clean
from trainyard.client import completion
from trainyard.client import outputs as contract
from trainyard.client.command import Json, Outputs, Stack, follow_job, reach, reach_jobs
from trainyard.client.console import print_table, say


def serve(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(
            help="Name of a run, or models:/NAME@ALIAS; with --stop, name of a service.",
            autocompletion=completion.runs,
        ),
    ],
    checkpoint: Annotated[
        str | None, typer.Option(help="Checkpoint of the run (default: the newest valid one).")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name and route of the service (default: the run's, or model's)."),
    ] = None,
    replicas: Annotated[
        str, typer.Option(metavar="N|MIN:MAX", help="Number of replicas; MIN:MAX follows the load.")
    ] = "1",
    cpus_per_replica: Annotated[float, typer.Option(min=0, help="CPUs of each replica.")] = 1,
    gpus_per_replica: Annotated[float, typer.Option(min=0, help="GPUs of each replica.")] = 0,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds until all replicas must answer.")
    ] = 300,
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Serve the run's own code though another stack kept it."),
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Withdraw the service.")] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Serve a run's model over HTTP; an existing service gets the new one."""
    from trainyard.client import registry, submission
    from trainyard.client import serve as serving

    imported = submission.prepare()
    stack_outputs = contract.read(stack, outputs)
    imported.result()
    stack_outputs = reach(context, stack_outputs)
    service = name or run
    if run.startswith(registry.SCHEME):
        promoted, run, checkpoint = registry.version(run, stack_outputs)
        service = name or promoted
        say(f"checkpoint {checkpoint} of run {run}")
    if stop:
        follow_job(*serving.stop(service, stack_outputs), stack_outputs)
        return
    server, job_id = serving.start(
        run,
        service,
        stack_outputs,
        checkpoint=checkpoint,
        replicas=replicas,
        replica={"CPU": cpus_per_replica, "GPU": gpus_per_replica},
        timeout_s=timeout,
        trust_code=trust_code,
    )
    follow_job(server, job_id, stack_outputs)
    model = serving.wait_for_answer(service, stack_outputs)
    answers = ", ".join(str(model[key]) for key in ("script", "checkpoint") if model.get(key))
    say(f"{serving.address(service, stack_outputs)} answers with {clean(answers)}")
    what, sent = ("inputs", serving.JSON) if "script" in model else ("images", serving.IMAGES)
    say(f"send it {what}, in bash:")
    say(f"  {serving.how_to_ask(service, stack_outputs, sent)}")


def services(
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """List the services that `train serve` started."""
    _, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import serve as serving

    print_table(
        serving.services(stack_outputs),
        serving.COLUMNS,
        as_json=as_json,
        whole=("service", "run", "checkpoint", "url"),
        empty="nothing is served yet: `train serve RUN` serves a run's newest checkpoint",
    )
