"""`train submit`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainyard.client import completion
from trainyard.client import outputs as contract
from trainyard.client.command import (
    JobArguments,
    Outputs,
    Script,
    Stack,
    Verbose,
    WorkingDir,
    follow_job,
    reach,
    warn_of_end,
)
from trainyard.client.console import say
from trainyard.client.errors import ClientError


def submit(
    context: typer.Context,
    job: Script,
    arguments: JobArguments = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the run; an existing run is resumed (default: a new name).",
            autocompletion=completion.runs,
        ),
    ] = None,
    entrypoint_num_cpus: Annotated[
        float | None,
        typer.Option(min=0, help="CPUs for the entrypoint (default: 0; 1 without Ray)."),
    ] = None,
    entrypoint_num_gpus: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="GPUs for the entrypoint (default: 0; 1 without Ray, if a worker has one).",
        ),
    ] = None,
    on_head: Annotated[
        bool,
        typer.Option(
            "--on-head",
            help="Run a script without Ray on the head, and reserve nothing (default: on a worker, "
            "if one has CPUs). Scripts with Ray run on the head anyway.",
        ),
    ] = False,
    entrypoint_memory: Annotated[
        int | None, typer.Option(min=0, help="Bytes of memory for the entrypoint (default: 0).")
    ] = None,
    entrypoint_resources: Annotated[
        str | None,
        typer.Option(help='Custom resources for the entrypoint as JSON, such as {"TPU": 4}.'),
    ] = None,
    runtime_env: Annotated[
        str | None,
        typer.Option(help="Ray's runtime environment: cpu, gpu, tpu, or a YAML or JSON file."),
    ] = None,
    pip: Annotated[
        list[str] | None, typer.Option("--pip", help="Package of pip for the job; repeat it.")
    ] = None,
    requirements: Annotated[
        list[Path] | None, typer.Option("-r", "--requirements", help="File with such packages.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="Variable for the job: KEY=VALUE; repeat it.")
    ] = None,
    working_dir: WorkingDir = None,
    submission_id: Annotated[
        str | None, typer.Option(help="Id of the job (default: a new id from Ray).")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(min=-1000, max=1000, help="In the stack's queue: higher first (default: 0)."),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            help="In the queue: start once this job, or run, has ended; repeat it.",
            autocompletion=completion.jobs,
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1000,
            help="In the queue: start again so often after the loss of the head (default: 3 for "
            "runs that resume, else 0).",
        ),
    ] = None,
    minutes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**6,
            help="In the queue: how long it runs at most, so that it may fill a hole.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            help="In the queue: submit it at each of these times instead of now. They are five "
            "fields of cron in UTC, such as '0 3 * * *'.",
        ),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not follow the job.")] = False,
    verbose: Verbose = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Queue a job that no declared node can hold, resume another user's run, or take a "
            "run from a submission whose job is not known.",
        ),
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Submit a job and follow it; exit with the job's result, 0 or 1."""
    from trainyard.client import history, runtimes, scripts, submission

    imported = submission.prepare()
    script = scripts.find(job, working_dir)
    config = scripts.config(script, arguments or [])  # bad ones, or --help, need no stack
    entrypoint = _bundle(
        {"CPU": entrypoint_num_cpus, "GPU": entrypoint_num_gpus, "memory": entrypoint_memory},
        entrypoint_resources,
    )
    if on_head and entrypoint:
        raise ClientError(
            f"--on-head reserves nothing, and --entrypoint-… asks for {', '.join(entrypoint)}: "
            "leave one of them out"
        )
    run_name = history.valid_name(name or submission.default_run_name(script))
    if every is not None:
        history.valid_name(run_name + submission.TIME)  # of its jobs
    no_wait = no_wait or every is not None
    watched = sys.stdout.isatty() and not no_wait
    request = submission.Request(
        script=script,
        arguments=arguments or [],
        config=config,
        run_name=run_name,
        runtime_env=submission.runtime_env(
            runtimes.find(runtime_env) if runtime_env else None,
            script,
            run_name,
            progress=watched,
            packages=[*runtimes.requirements(requirements or []), *(pip or [])],
            variables=env or [],
        ),
        submission_id=submission_id,
        entrypoint=entrypoint,
        is_plain=not on_head and not scripts.is_driver(script),
        own=not force,
        order={
            name: str(value)
            for name, value in {
                "priority": priority,
                "after": ",".join(after or []) or None,
                "retries": retries,
                "minutes": minutes,
                "every": every,
            }.items()
            if value is not None
        },
    )
    stack_outputs = contract.read(stack, outputs)
    imported.result()
    warn_of_end(stack_outputs)
    stack_outputs = reach(context, stack_outputs)
    server, job_id = submission.submit(request, stack_outputs, force=force)
    say(f"Job '{job_id}' submitted successfully", rule=True)
    if every is not None:
        say(f"its next time: `train queue`; end it: `train stop {job_id}`")
        return
    say(f"run {run_name}; follow: `train logs -f {job_id}`; stop: `train stop {job_id}`")
    if not no_wait:
        from trainyard.client import results
        from trainyard.client.log_writer import LogWriter

        follow_job(server, job_id, stack_outputs, LogWriter(verbose=verbose))

        results.tell(stack_outputs, run_name)


def _bundle(amounts: dict[str, float | None], text: str | None) -> dict[str, float]:
    """The bundle of amounts, and of more of them as JSON."""
    given = {name: float(amount) for name, amount in amounts.items() if amount is not None}
    try:
        return given | {
            str(k): float(v) for k, v in json.loads("{}" if text is None else text).items()
        }
    except (json.JSONDecodeError, AttributeError, TypeError, ValueError):
        raise ClientError(
            f"--entrypoint-resources {text!r} is not a JSON object of amounts: "
            """give it like '{"TPU": 4}'"""
        ) from None
