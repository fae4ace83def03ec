"""Runs the user's Pulumi program in this process, as Pulumi's own Python runner does in its own."""

import asyncio
import logging
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pulumi
from pulumi.runtime import Settings as SdkSettings
from pulumi.runtime import configure, run_in_stack, set_all_config

from engine.context import PARALLEL, Context
from engine.errors import EngineError
from engine.monitor import Monitor
from engine.project import Project, StackSettings


@contextmanager
def program_folder(project: Project) -> Iterator[str]:
    """Work in the program's folder, so that it and its providers find their modules.

    Yields:
        What to run there: the folder itself, or the name of the program's file.
    """
    main = project.main
    folder = main if main.is_dir() else main.parent
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    # The importer of "." would still search the previous folder.
    sys.path_importer_cache.pop(".", None)
    try:
        yield "." if main.is_dir() else main.name
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)


def run_program(context: Context, settings: StackSettings) -> None:
    """Run the program to its end; a fault in it becomes a failure of the operation."""
    project = context.project
    monitor = Monitor(context)
    set_all_config(settings.config, settings.secret_keys)
    configure(
        SdkSettings(
            project=project.name,
            stack=context.stack,
            monitor=monitor,
            engine=monitor,
            parallel=PARALLEL,
            dry_run=context.dry_run,
            organization="organization",
            root_directory=str(project.root),
        )
    )
    # On purpose nobody awaits the futures that a failed program leaves.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=PARALLEL * 4)
    loop.set_default_executor(executor)
    with program_folder(project) as program:

        def run() -> None:
            runpy.run_path(program, run_name="__main__")

        try:
            loop.run_until_complete(run_in_stack(run))
        except (pulumi.RunError, EngineError) as error:
            context.fail("program", error)
        except SystemExit as exit_:
            if exit_.code:
                context.fail("program", EngineError(f"it exited with {exit_.code}"))
        except Exception as error:
            context.fail("program", EngineError(_where(error, project.main)))
        finally:
            executor.shutdown(wait=True)
            loop.close()


def _where(error: Exception, main: Path) -> str:
    """The traceback from the user's program on."""
    folder = main if main.is_dir() else main.parent
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if Path(f.filename).resolve().is_relative_to(folder.resolve())]
    lines = traceback.format_list(inside) if inside else []
    return "".join(["unhandled exception\n", *lines, *traceback.format_exception_only(error)])
