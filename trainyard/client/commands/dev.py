"""`train dev`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.client.command import (
    INTERRUPTED,
    JobArguments,
    Outputs,
    Script,
    Stack,
    WorkingDir,
)
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

if TYPE_CHECKING:
    from trainyard.client.dev.session import DevSession


def dev(
    job: Script,
    arguments: JobArguments = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Let each run wait for your editor's debugger.")
    ] = False,
    working_dir: WorkingDir = None,
    runtime_env: Annotated[
        Path | None, typer.Option(help="YAML or JSON file with Ray's runtime environment.")
    ] = None,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Run a job in a warm session, and again after each save, until Ctrl-C."""
    from trainyard.client.dev import session as sessions

    session = sessions.open_session(
        job,
        arguments or [],
        idle=False,
        debug=debug,
        working_dir=working_dir,
        runtime_env=runtime_env,
        stack=stack,
        outputs=outputs,
    )
    try:
        _run_after_saves(session)
    except KeyboardInterrupt:
        say("\nending the session")
        session.close()
        say(f"session {session.job_id} has ended; nothing of it runs")
        raise typer.Exit(INTERRUPTED) from None
    except BaseException:
        session.close()
        raise
    session.close()
    raise ClientError(f"session {session.job_id} has ended unexpectedly: start it again")


def _run_after_saves(session: DevSession) -> None:
    from trainyard.client.dev import watch

    for touched in watch.saves(session.sources):
        if session.ended is not None:
            return
        try:
            if touched and session.save(touched):
                say(f"saved: {session.sent_bytes} bytes sent")
        except ClientError as error:
            warn(f"error: {error}")
