"""The words that a shell completes: names of stacks, jobs, runs and sweeps.

A shell waits for them after each press of the key, so they are complete only if the stack answers
within DEADLINE_S, and nothing is said if it does not.

Others can choose the names of jobs and of folders in a store. zsh evaluates what a completion
answers, and bash puts it into the command line as it is, so only a WORD is offered.
"""

# ruff: noqa: PLC0415 - most presses of the key need none of it

import re
from collections.abc import Callable, Iterable

import typer

from trainyard.client import outputs as contract

DEADLINE_S = 3.0
WORD = re.compile(r"\w[\w./-]*", re.ASCII)  # needs no quoting in any shell, and is not an option


def stacks(incomplete: str) -> list[str]:
    """Return the stacks that have settings, and the attached clusters."""
    return _beginning(incomplete, sorted(contract.known_stacks()))


def scripts(incomplete: str) -> list[str]:
    """Return the jobs of training/; without one, shells complete files."""
    from trainyard.client import scripts as known

    return _beginning(incomplete, known.names())


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the runs that have jobs, and the ids of all jobs, newest first."""
    return _beginning(incomplete, _in_time(context, _jobs))


def runs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the runs in the store."""
    return _beginning(incomplete, _in_time(context, _runs))


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return what the names of two or more runs have in common before a number, as in a sweep."""
    named = [f"{name.rpartition('-')[0]}-" for name in _in_time(context, _runs) if "-" in name]
    return _beginning(incomplete, sorted({each for each in named if named.count(each) > 1}))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    found = (name for name in dict.fromkeys(names) if name.startswith(incomplete))
    return [name for name in found if WORD.fullmatch(name)]


def _in_time(
    context: typer.Context, names: Callable[[contract.StackOutputs], list[str]]
) -> list[str]:
    from trainyard.access import parallel
    from trainyard.client import connection

    def ask() -> list[str]:
        outputs = contract.read(context.params.get("stack"), context.params.get("outputs"))
        if outputs.cluster is not None:  # kubectl would outlive a press of the key
            return []
        with connection.to(outputs, lambda _: None) as reached:
            return names(reached.outputs)

    try:
        return parallel.start(ask).result(DEADLINE_S)
    except Exception:  # the command itself reports it; a prompt stays clean
        return []


def _jobs(outputs: contract.StackOutputs) -> list[str]:
    from trainyard.client.job_server import JobServer

    found = sorted(JobServer(outputs).jobs(), key=lambda job: -job.start_time)
    found = [job for job in found if job.submission_id]
    return [*filter(None, (job.run for job in found)), *(job.submission_id for job in found)]


def _runs(outputs: contract.StackOutputs) -> list[str]:
    from trainyard.client.store import open_store

    return [name for name in open_store(outputs).folders() if not name.startswith(".")]
