"""`train`: bring a stack up, submit jobs to its cluster, follow and stop them, look at runs."""

# ruff: noqa: PLC0415 - each command imports only what it needs, since imports are slow

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from trainyard.access import repository, terminal, user
from trainyard.access.terminal import clean, print_json
from trainyard.client import (
    attach,
    completion,
    extras,
    manifests,
    restore,
    services,
    stack_commands,
    watch,
)
from trainyard.client import info as info_rows
from trainyard.client import outputs as contract
from trainyard.client.command import (
    INTERRUPTED,
    JobName,
    Json,
    Outputs,
    RunName,
    Script,
    Stack,
    follow_job,
    reach,
    reach_jobs,
    warn_of_end,
    why_it_waits,
)
from trainyard.client.console import print_facts, print_table, say, warn
from trainyard.client.dev import command as dev_command
from trainyard.client.drill import command as drill_command
from trainyard.client.errors import ClientError
from trainyard.client.help_text import Commands
from trainyard.client.pull import command as pull_command
from trainyard.client.ui import command as ui_command

PACKAGES = (extras.DISTRIBUTION, "ray", "torch")  # a bug report needs their versions
app = typer.Typer(cls=Commands, help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(stack_commands.app)
app.add_typer(attach.app)
app.add_typer(services.app)
app.add_typer(drill_command.app)
app.add_typer(dev_command.app)
app.add_typer(pull_command.app)
app.add_typer(ui_command.app)
app.add_typer(restore.app)
app.add_typer(manifests.app)
app.add_typer(watch.app)


def main() -> None:
    """Runs the command line; a user's error becomes one message and exit code 1.

    So does the loss or restart of the head during a command.
    """
    try:
        if (checkout := repository.another()) is not None:
            raise ClientError(
                f"this `train` is of {repository.ROOT}, and would not run the code of the checkout "
                f"{checkout}: run `make setup` there, then use {checkout}/.venv/bin/train"
            )
        app(
            prog_name="train"
        )  # or `python -m trainyard.client` would install a completion of `python`
    except ClientError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        message = extras.explained(error)
        if message is None:
            raise
        _fail(message)
    except Exception as error:
        from trainyard.client import unreachable

        message = unreachable.explained(error)
        if message is None:
            raise
        _fail(message)


def _fail(error: ClientError) -> NoReturn:
    warn(f"error: {error}")
    sys.exit(1)


def _print_versions(context: typer.Context, asked: bool) -> None:
    if not asked or context.resilient_parsing:  # a shell's completion
        return
    from importlib import metadata

    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            say(f"{name} {metadata.version(name)}")
    raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print versions and exit."
        ),
    ] = False,
) -> None:
    """Options before a command."""


@app.command()
def submit(
    context: typer.Context,
    job: Script,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the job, after `--`.")
    ] = None,
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
    working_dir: Annotated[
        str | None, typer.Option(help="Folder to upload (default: the folder of the .py file).")
    ] = None,
    submission_id: Annotated[
        str | None, typer.Option(help="Id of the job (default: a new id from Ray).")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not follow the job.")] = False,
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
    watched = sys.stdout.isatty() and not no_wait
    request = submission.Request(
        script=script,
        arguments=arguments or [],
        config=config,
        run_name=run_name,
        runtime_env=submission.runtime_env(
            runtimes.find(runtime_env) if runtime_env else None, script, run_name, progress=watched
        ),
        submission_id=submission_id,
        entrypoint=entrypoint,
        is_plain=not on_head and not scripts.is_driver(script),
        owner="" if force else user.name(),
    )
    stack_outputs = contract.read(stack, outputs)
    imported.result()
    warn_of_end(stack_outputs)
    stack_outputs = reach(context, stack_outputs)
    server, job_id = submission.submit(request, stack_outputs, force=force)
    say(f"Job '{job_id}' submitted successfully", rule=True)
    say(f"run {run_name}; follow: `train logs -f {job_id}`; stop: `train stop {job_id}`")
    if not no_wait:
        follow_job(server, job_id, stack_outputs)
        from trainyard.client import results

        results.tell(stack_outputs, run_name)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the job, such as my_job.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Where to write it (default: training/ in the checkout, else here)."
        ),
    ] = None,
) -> None:
    """Write a first job: as it is, it learns handwritten digits."""
    from trainyard.client import new_job

    path, command = new_job.write(name, folder)
    say(f"wrote {path}")
    say(f"submit it: {command}")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Your repository; created if missing.")] = Path(),
) -> None:
    """Write a project into your own repository: as it is, it trains."""
    from trainyard.quickstart import init as project

    say(f"wrote {', '.join(str(path) for path in project.write(folder))}")
    say(f"next, in {folder.resolve()}:")
    for command, effect in project.NEXT:
        say(f"  {command:<60}  {effect}")


@app.command()
def dashboard(
    print_only: Annotated[
        bool,
        typer.Option("--print", help="Print the address and the token only."),
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Open Ray's dashboard in your browser, and print the token that it asks for."""
    import webbrowser

    stack_outputs = contract.read(stack, outputs)
    say(f"address  {stack_outputs.dashboard_url}")
    # The dashboard asks for it; it must not be in the address, which browsers keep.
    if stack_outputs.ray_token:
        say(f"token    {stack_outputs.ray_token}")
    if stack_outputs.away:
        say(f"the address is on {stack_outputs.away}: `train tunnel`")
    elif not print_only and not webbrowser.open(stack_outputs.dashboard_url):
        warn("found no browser: open the address yourself")


@app.command()
def info(context: typer.Context, stack: Stack = None, outputs: Outputs = None) -> None:
    """Show the stack's addresses and the next commands; exit with 1 if a service is not well."""
    from trainyard.client import disks, health, parallel
    from trainyard.client import idle as idle_end

    stack_outputs = contract.read(stack, outputs)
    asked = parallel.start(health.of, stack_outputs)  # next to the other questions
    idle = ""
    if stack_outputs.attached:
        stack_outputs = reach(context, stack_outputs)
    try:
        reached = stack_outputs if stack_outputs.attached else reach(context, stack_outputs)
        disk = disks.row(reached)
        if idle_end.watch(stack_outputs):
            idle = idle_end.summary(reached)
    except ClientError as error:  # it may have ended
        disk = idle = f"not known: {error}"
    for title, rows in (
        ("", info_rows.addresses(stack_outputs, disk, idle)),
        ("next:", info_rows.next_steps(stack_outputs)),
    ):
        print_facts(title, rows)
    for fault in (faults := asked.result() or []):
        warn(f"error: {fault}")
    if faults:
        raise typer.Exit(1)


@app.command()
def keep(
    context: typer.Context,
    time: Annotated[str, typer.Argument(help="Time from now, such as 2h or 90m.")],
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Keep rented machines for a time although they are idle, at most until their deadline."""
    from trainyard.client import idle as idle_end

    seconds = idle_end.duration(time)
    stack_outputs = contract.read(stack, outputs)
    if idle_end.watch(stack_outputs):
        stack_outputs = reach(context, stack_outputs)
    say(f"ends when idle: {idle_end.keep(stack_outputs, seconds)}")


@app.command()
def tunnel(stack: Stack = None, outputs: Outputs = None) -> None:
    """Bring a stack's dashboard and other services to this machine, until Ctrl-C."""
    stack_outputs = contract.read(stack, outputs)
    if not stack_outputs.away:
        say(f"stack {stack_outputs.stack!r} answers here: `train info` has its addresses")
        return
    from trainyard.client import connection

    try:
        with connection.to(stack_outputs, same_ports=True) as opened:
            rows = [vars(route) for route in opened.routes]
            print_table(rows, ("service", "here", "there"), as_json=False)
            say(f"through {stack_outputs.away}; Ctrl-C ends it")
            opened.wait()
    except KeyboardInterrupt:
        say("\ntunnel closed")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(1)  # it has given up, and said why


@app.command(name="cluster-file")
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
        return
    stack_outputs = contract.read(stack, outputs)
    if not stack_outputs.ray_cluster_file:
        raise ClientError(
            f"stack {stack_outputs.stack!r} has no cluster file: only a stack on SSH hosts "
            "that leaves Ray to Ray's own launcher has one; name it with --stack"
        )
    head = stack_outputs.nodes[0].name
    say(f"Generating ray config file {output} using IP from {head} instance")
    try:
        output.touch(mode=0o600)
        output.chmod(0o600)
        output.write_text(stack_outputs.ray_cluster_file, encoding="utf-8")
    except OSError as error:
        raise ClientError(
            f"cannot write {output} ({error.strerror}): give another file with --output"
        ) from None


@app.command(name="list")
def list_jobs(
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """List the cluster's jobs, newest first, and why they wait."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import rows

    found = rows.of_jobs(server, stack_outputs)
    print_table(
        found,
        rows.JOBS,
        as_json=as_json,
        whole=("job", "run"),
        below="waits",
        empty=rows.NO_JOBS,
    )


@app.command()
def status(
    context: typer.Context,
    job: JobName,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Show a job's state, and why it waits."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import jobs, rows

    found = jobs.resolve(server, job)
    wait = why_it_waits(server, found, stack_outputs)
    facts = rows.of_job(found) | {
        "entrypoint": found.entrypoint,
        "commit": found.metadata.get("commit", ""),
        "message": jobs.failure(found) if found.message else "",
        "demand": wait.demand if wait else "",
        "waits": wait.reason if wait else "",
        "ends": wait.ends if wait else "",
    }
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        if value not in ("", None):
            first, *others = str(value).splitlines() if key == "message" else [clean(value)]
            say("\n".join([f"{key:>10}  {first}", *(f"{'':>10}  {line}" for line in others)]))


@app.command()
def logs(
    context: typer.Context,
    job: JobName,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Follow the job to its end; exit with its result."),
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a job's log from its beginning."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import jobs

    job_id = jobs.resolve(server, job).submission_id
    warn_of_end(stack_outputs)
    if follow:
        follow_job(server, job_id, stack_outputs)
    else:
        from trainyard.client.console import LogWriter

        writer = LogWriter()
        writer.write(jobs.read_log(server, job_id))
        writer.close()


@app.command()
def stop(
    context: typer.Context, job: JobName, stack: Stack = None, outputs: Outputs = None
) -> None:
    """Stop a job and wait until it has stopped; its checkpoints stay."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import jobs

    found = jobs.resolve(server, job)
    job_id = found.submission_id
    if found.status.ended:
        say(f"job {job_id} has ended already: {found.status}")
        return
    server.stop(job_id)
    if found.status == "UNREADABLE":
        say(f"asked job {job_id} to stop; {found.message}")
        return
    if found.status == "PENDING":
        timeout = stack_outputs.job_start_timeout
        fails = (
            f", and fails it after {timeout.total_seconds():g} s in the queue" if timeout else ""
        )
        say(f"job {job_id} is queued: Ray stops it when it is about to start{fails}")
        return
    ended = jobs.wait_for_end(server, job_id)
    say(f"job {job_id}: {ended.status}")


@app.command()
def runs(
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """List the runs in the store, newest first, with their last metrics."""
    stack_outputs = reach(context, contract.read(stack, outputs))
    from trainyard.client import rows

    found = rows.of_runs(stack_outputs)
    columns = (*rows.RUNS, "fault") if any(row["fault"] for row in found) else rows.RUNS
    print_table(found, columns, as_json=as_json, whole=("run",), empty=rows.NO_RUNS)


@app.command()
def compare(
    context: typer.Context,
    groups: Annotated[
        list[str],
        typer.Argument(
            help="Prefix of the run names of each group.", autocompletion=completion.groups
        ),
    ],
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Compare groups of runs: total time from first start to last end, nodes, throughput."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import compare as comparison
    from trainyard.client import history, jobs
    from trainyard.client.state import ClusterState
    from trainyard.client.store import open_store

    store = open_store(stack_outputs)
    rows = comparison.rows(
        groups,
        jobs.submissions(server),
        ClusterState(stack_outputs).placed(),
        lambda run: len(history.read_run(store, run).metrics),
    )
    print_table(rows, comparison.COLUMNS, as_json=as_json)


@app.command()
def show(
    context: typer.Context,
    run: RunName,
    curves: Annotated[
        Path | None,
        typer.Option("--curves", help="PNG file for the curves, also of a run that goes on."),
    ] = None,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a run: configuration, commit, versions, metrics, checkpoint."""
    stack_outputs = reach(context, contract.read(stack, outputs))
    from trainyard.client import history, results, store

    place = store.open_store(stack_outputs)
    record = history.read_run(place, run)
    if as_json:
        print_json(vars(record))
    else:
        say(f"run         {record.name}")
        if record.fault:
            say(f"fault       {clean(record.fault)}")
        say(f"config      {terminal.as_json(record.config)}")
        for start in record.starts:
            versions = ", ".join(f"{k} {v}" for k, v in start["packages"].items() if v)
            commit = clean(start["commit"]) or "unknown"
            say(f"started     {clean(start['time'])}, commit {commit}")
            say(f"            Python {clean(start['python'])}, {clean(versions)}")
        say(f"checkpoint  {record.checkpoint or 'none yet'}")
        if page := results.tracked_at(stack_outputs, place, record.name):
            say(f"mlflow      {page}")
        epochs = [
            {"epoch": history.epochs(record, done)}
            | {k: history.rounded(v) for k, v in epoch.items() if k != "epoch"}
            for done, epoch in enumerate(record.metrics, start=1)
        ]
        columns = tuple(dict.fromkeys(["epoch", *(key for epoch in epochs for key in epoch)]))
        print_table(
            epochs,
            columns,
            as_json=False,
            empty=f"no epoch is done yet: `train logs -f {record.name}` follows its job",
        )
    if curves is not None:
        results.save_curves(place, record, curves)
        if not as_json:
            say(f"curves      {curves}")


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
