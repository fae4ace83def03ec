"""`train stop`."""

from trainyard.client.command import JobName, Outputs, Stack
from trainyard.client.console import say


def stop(job: JobName, stack: Stack = None, outputs: Outputs = None) -> None:
    """Stop a job and wait until it has stopped; its checkpoints stay."""
    from trainyard.client import api

    say(api.stop(job, stack, outputs))
