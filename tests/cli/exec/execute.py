"""Executes a Pulumi program in this process, with settings from arguments and environment.

It is in a folder of its own, because that comes first in sys.path: in the CLI it is the folder of
the CLI's programs, which has no modules.
"""

import argparse
import asyncio
import logging
import os
import runpy
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import pulumi
from pulumi import runtime

SHOWN = 32  # exit code: the user has seen what went wrong
THREADS = 4  # for each of the parallel operations


def main() -> int:
    """Run the program; the exit code."""
    parser = argparse.ArgumentParser()
    for name in ("monitor", "engine", "project", "root_directory", "stack", "pwd", "organization"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--dry_run", type=lambda text: text == "true")
    parser.add_argument("--parallel", type=int)
    parser.add_argument("program")
    options = vars(parser.parse_args())
    program, folder = options.pop("program"), options.pop("pwd")

    runtime.set_all_config(runtime.get_config_env(), runtime.get_config_secret_keys_env())
    runtime.configure(runtime.Settings(**options))
    sys.argv = [program]
    os.chdir(folder)
    # A program that fails leaves futures behind that nobody awaits, on purpose.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with ThreadPoolExecutor(options["parallel"] * THREADS) as executor:
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(runtime.run_in_stack(lambda: _run(program)))
        except pulumi.RunError as error:
            pulumi.log.error(str(error))
            return 1
        except Exception:
            text = traceback.format_exc()
            pulumi.log.error(f"Program failed with an unhandled exception:\n{text}")
            return SHOWN
    return 0


def _run(program: str) -> None:
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
