"""Why a job failed: in the words of pip, of Ray, and of the job."""

import asyncio
import logging
import os
import time
import traceback
from contextlib import ExitStack

import pytest
import virtualenv
from ray._private.runtime_env import pip
from ray.exceptions import RuntimeEnvSetupError
from ray.runtime_env import RuntimeEnv

from tests import web
from trainyard.client import failure
from trainyard.client.job_server import Job, Status

FAILED = "Job entrypoint command failed with exit code"
CODE = f"{FAILED} %d, last available logs (x):\n"
KILLED = "it was killed, probably because its node ran out of memory"
FRAME = '  File "/tmp/mine.py", line 3, in main\n    '
NO_ENVIRONMENT = "runtime_env setup failed: Failed to set up runtime environment"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with pip, where Ray looks for it; made without a network."""
    folder = tmp_path_factory.mktemp("environment")
    virtualenv.cli_run(["--no-download", "--no-setuptools", str(folder / "virtualenv")])
    return folder


@pytest.mark.parametrize("index", ["empty", "nobody"])
def test_a_package_that_is_not_to_be_had_is_said_in_pips_words(index, environment):  # F30
    """Ray's installer against a real index without the package, and one that is not there."""

    async def install(url):
        asked = {"packages": ["no-such-package"], "pip_check": False}
        installer = pip.PipProcessor(str(environment), RuntimeEnv(pip=asked))
        index = {"PIP_INDEX_URL": f"{url}/simple", "PIP_RETRIES": "0"}
        await installer._install_pip_packages(
            *(str(environment), asked["packages"], str(environment), os.environ | index),
            logging.getLogger(__name__),
        )

    with ExitStack() as served:
        server = served.enter_context(web.serving(lambda _: (404, b"")))
        if index == "nobody":
            served.close()
        begun = time.monotonic()
        try:
            asyncio.run(install(server.url))
        except Exception:
            # As the node's agent tells the head, and the head the client.
            error = RuntimeEnvSetupError(traceback.format_exc())
        else:
            pytest.fail("it was installed")
    assert time.monotonic() - begun < 60
    failed = Job(status=Status.FAILED, message=f"runtime_env setup failed: {error}")
    said = "ERROR: No matching distribution found for no-such-package"
    assert failure.of(failed) == f"{NO_ENVIRONMENT}: {said}"


NOT_INSTALLED = (
    "no-such-package, humanize (pip) not installed. Check that the cluster reaches the package "
    "index, or raise setup_timeout_seconds in config of the runtime environment"
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "no reason is known"),
        (f"{CODE % 1}ERROR: a", f"{FAILED} 1"),
        (
            (
                f"{CODE % 1}Traceback (most recent call last):\n"
                '  File "/tmp/mine.py", line 5, in <module>\n    main()\n'
                f"{FRAME}print(x)\n          ^\nNameError: name 'x' is not defined\nthe end\n"
            ),
            f"{FAILED} 1\n{FRAME}print(x)\n          ^\nNameError: name 'x' is not defined",
        ),
        (
            (
                f"{CODE % 1}"
                '\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.4)\x1b[0m   File "a.py", line 3, in f\n'
                "\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.4)\x1b[0m KeyError: 3\n"
                "error: give another --name\n"
            ),
            f"{FAILED} 1\ngive another --name",
        ),
        (
            f"{CODE % 1}{FRAME}import a.b\nModuleNotFoundError: No module named 'a.b'\n",
            (
                f"{FAILED} 1\n{FRAME}import a.b\nModuleNotFoundError: No module named 'a.b'\n"
                "submit again with --pip a, or the name of its package"
            ),
        ),
        (f"{CODE % 137}Killed", f"{FAILED} 137: {KILLED} (train info)"),
        (
            f"{CODE % 137}killed: head memory 7.9 of 8.0 GiB in use\nkept out.txt\n",
            f"{FAILED} 137: {KILLED} (head memory 7.9 of 8.0 GiB in use)",
        ),
        (  # the job handled that error
            f'{CODE % 3}  File "a.py", line 3, in f\nKeyError: 3\n' + "goes on\n" * 50,
            f"{FAILED} 3",
        ),
        (
            f"{NO_ENVIRONMENT}.\nTraceback\n  x\nOSError: no such package\n",
            f"{NO_ENVIRONMENT}: OSError: no such package",
        ),
        (  # F30
            "Job supervisor actor failed to start within 900.0 seconds.\nThis timeout can be set",
            f"Job supervisor actor failed to start within 900.0 seconds: {NOT_INSTALLED}",
        ),
    ],
)
def test_why_a_job_failed(message, reason):
    asked = {"pip": {"packages": ["no-such-package", "humanize"]}, "env_vars": {}}
    failed = Job(status=Status.FAILED, message=message, runtime_env=asked)
    assert failure.of(failed) == reason


USER = '  File "/tmp/r/s/runtime_resources/working_dir_files/_ray_pkg_1/a.py", line 3, in f'


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (CODE % 3, "exit code 3"),
        (f"{CODE % 1}{USER}\n    x\nKeyError: 3\n", "exit code 1: KeyError: 3 (a.py, line 3)"),
        (
            f"{CODE % 1}(work pid=7) {USER} [repeated 2x]\nKeyError: 3 [repeated 2x]\n",
            "exit code 1: KeyError: 3 (a.py, line 3)",
        ),
        (f"{CODE % 1}error: give another --name\n", "exit code 1"),
        (
            f"{CODE % 1}{USER}\nModuleNotFoundError: No module named 'a.b'\n",
            (
                "exit code 1: ModuleNotFoundError: No module named 'a.b' (a.py, line 3)\n"
                "submit again with --pip a, or the name of its package"
            ),
        ),
        (
            (
                f"{CODE % 2}Running python dyn.py --widht 3\nusage: dyn.py [-h] [--width W]\n"
                "              [--batch-size B]\ndyn.py: error: unrecognized arguments: --widht 3\n"
            ),
            (
                "exit code 2: unrecognized arguments: --widht 3\n"
                "did you mean '--width'? the script's own --help has its arguments"
            ),
        ),
    ],
)
def test_an_error_that_was_shown_is_told_in_one_line(message, shown):
    assert failure.of(Job(status=Status.FAILED, message=message), shown=True) == shown
