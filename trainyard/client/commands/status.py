"""`train status`."""

import typer

from trainyard.access.terminal import clean, print_json
from trainyard.client.command import JobName, Json, Outputs, Stack, reach_jobs, why_it_waits
from trainyard.client.console import say


def status(
    context: typer.Context,
    job: JobName,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Show a job's state, and why it waits."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import failure, jobs, rows

    found = jobs.resolve(server, job)
    wait = why_it_waits(server, found, stack_outputs)
    facts = rows.of_job(found) | {
        "entrypoint": found.entrypoint,
        "commit": found.metadata.get("commit", ""),
        "message": failure.of(found) if found.message else "",
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
