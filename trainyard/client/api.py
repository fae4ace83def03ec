"""What the commands do, as functions for notebooks and programs: `trainyard.runs()`.

Each asks the stack that `stack` names, or TRAINYARD_STACK, or `dev`, and raises a ClientError that
says what to do.
"""

# ruff: noqa: PLC0415 - as in the commands: most modules are slow to import

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainyard.client import connection
from trainyard.client import outputs as contract
from trainyard.client.outputs import StackOutputs
from trainyard.client.selection import ALL, Selection

RESULTS = "results"


def submit(
    job: str,
    arguments: Sequence[str] = (),
    *,
    name: str | None = None,
    wait: bool = True,
    stack: str | None = None,
    **options: Any,
) -> dict[str, str]:
    """Submit a job and follow it, as `train submit` does.

    Args:
        job: name of a job, or path of a .py file.
        arguments: what follows `--` on the command line.
        name: the name of the run. An existing run is resumed; None makes a new name.
        wait: whether to print the log until the job has ended.
        stack: see above.
        **options: `working_dir` and `runtime_env` of the command.

    Returns:
        `run`, `job` (its id) and `status`, such as SUCCEEDED, or PENDING without `wait`.
    """
    from trainyard.client import history, job_log, jobs, runtimes, scripts, submission
    from trainyard.client.log_writer import LogWriter

    script = scripts.find(job, options.pop("working_dir", None))
    run = history.valid_name(name or submission.default_run_name(script))
    env = options.pop("runtime_env", None)
    file = runtimes.find(env) if env else None
    if options:
        raise TypeError(f"submit has no option {', '.join(options)}")
    request = submission.Request(
        script=script,
        arguments=arguments,
        config=scripts.config(script, arguments),
        run_name=run,
        runtime_env=submission.runtime_env(file, script, run, progress=False),
        is_plain=not scripts.is_driver(script),
        own=True,
    )
    with _reached(stack) as outputs:
        server, job_id = submission.submit(request, outputs, force=False)
        status = "PENDING"
        if wait:
            writer = LogWriter()
            ended = job_log.follow(
                server, job_id, writer.write, lost_after_s=jobs.patience(outputs)
            )
            writer.close()
            status = str(ended.status)
    return {"run": run, "job": job_id, "status": status}


def runs(
    stack: str | None = None, outputs: Path | None = None, selection: Selection = ALL
) -> list[dict[str, Any]]:
    """Return the runs of the store, newest first: name, user, epochs, status, figures, start."""
    from trainyard.client import rows

    with _reached(stack, outputs, left=True) as reached:
        return rows.of_runs(reached, selection=selection)


def show(run: str, stack: str | None = None) -> dict[str, Any]:
    """Return a run's configuration, starts, jobs, metrics, checkpoint and cost."""
    from trainyard.client import costs, history, store

    with _reached(stack, left=True) as outputs:
        return vars(costs.of_run(outputs, history.read_run(store.open_store(outputs), run)))


def logs(job: str, stack: str | None = None, outputs: Path | None = None) -> str:
    """Return the log of a job, by its id or its run; from the store if the cluster is gone."""
    return "".join(log_pieces(job, stack, outputs))


def log_pieces(
    job: str, stack: str | None, outputs: Path | None, since: float = 0
) -> Iterator[str]:
    """Yield the same in pieces, of a log of any length; only lines from a time, in s since 1970.

    `job` may be a service: then the log is of the job that has deployed it, and of its replicas.
    """
    from trainyard import serving
    from trainyard.client import history, jobs, left_results, store
    from trainyard.client.console import warn
    from trainyard.client.errors import ClientError
    from trainyard.client.log_writer import Choice

    begun, service = False, job if job.startswith(serving.run_of("")) else serving.run_of(job)
    try:
        with _reached(stack, outputs) as reached:
            server = jobs.connect(reached)
            known = jobs.submissions(server)
            names = {name for each in known for name in (each.submission_id, each.run)}
            found = jobs.pick(known, service if service in names and job not in names else job)
            choice = Choice(skip=jobs.lines_before(found, reached, since))
            for text in map(choice.after, jobs.read_log(server, found.submission_id)):
                begun = begun or bool(text)
                yield text
            if service in names:
                try:
                    yield from history.replica_logs(store.open_store(reached), service, since)
                except ClientError as error:  # the job's log is whole
                    warn(f"warning: what the replicas of {service} print is not shown: {error}")
    except ClientError:
        if begun:  # or a part would come twice
            raise
        stored: list[str] = []
        try:
            place = store.open_store(left_results.read(stack, outputs))
            logs = (history.stored_log(place, history.valid_name(n), since) for n in (job, service))
            stored += next(([text] for text in logs if text is not None), [])
            stored += history.replica_logs(place, service, since)
        except history.NoTimesError:
            raise
        except ClientError:
            pass
        if not stored:
            raise
        yield from stored


def stop(job: str, stack: str | None = None, outputs: Path | None = None) -> str:
    """Stop a job, and wait until it has stopped; return a sentence that says how it ended."""
    from trainyard.client import jobs

    with _reached(stack, outputs) as reached:
        server = jobs.connect(reached)
        found = jobs.resolve(server, job)
        job_id = found.submission_id
        if found.status.ended:
            return f"job {job_id} has ended already: {found.status}"
        server.stop(job_id)
        if found.status == "UNREADABLE":
            return f"asked job {job_id} to stop; {found.message}"
        if found.status == "PENDING" and not server.job(job_id).status.ended:
            timeout = reached.job_start_timeout
            fails = (
                f", and fails it after {timeout.total_seconds():g} s in the queue"
                if timeout
                else ""
            )
            return f"job {job_id} is queued: Ray stops it when it is about to start{fails}"
        return f"job {job_id}: {jobs.wait_for_end(server, job_id).status}"


def pull(run: str, to: str | Path = RESULTS, stack: str | None = None) -> Path:
    """Bring a run's records, output and newest checkpoint; return its folder."""
    from trainyard.client import history, store
    from trainyard.client.pull.transfer import Transfer

    folder = Path(to) / history.valid_name(run)
    with _reached(stack, left=True) as outputs:
        place = store.open_store(outputs)
        if Transfer(place, run, folder).run() is None:
            raise history.no_run(place, run)
    return folder


@contextmanager
def _reached(
    stack: str | None, file: Path | None = None, *, left: bool = False
) -> Iterator[StackOutputs]:
    """Reach a stack; with `left` also the results of one that is down."""
    from trainyard.client import left_results

    read = left_results.read if left else contract.read
    with connection.to(read(stack, file)) as reached:
        yield reached.outputs
