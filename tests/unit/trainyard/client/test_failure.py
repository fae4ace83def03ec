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

NO_ENVIRONMENT = "runtime_env setup failed: Failed to set up runtime environment"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with pip, where Ray looks for it; made without a network."""
    folder = tmp_path_factory.mktemp("environment")
    virtualenv.cli_run(["--no-download", "--no-setuptools", str(folder / "virtualenv")])
    return folder


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("empty", "ERROR: No matching distribution found for no-such-package"),
        ("nobody", "ERROR: No matching distribution found for no-such-package"),
    ],
)
def test_a_package_that_is_not_to_be_had_is_said_in_pips_words(index, said, environment):  # F30
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
    assert failure.of(failed) == f"{NO_ENVIRONMENT}: {said}"


NOT_INSTALLED = (
    "no-such-package, humanize (pip) not installed. Check that the cluster reaches the package "
    "index, or raise setup_timeout_seconds in config of the runtime environment"
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "no reason is known"),
        (
            "Job entrypoint command failed with exit code 1, last available logs (x):\nERROR: a",
            "Job entrypoint command failed with exit code 1",
        ),
        (
            (
                "Job entrypoint command failed with exit code 1, last available logs (x):\n"
                "Traceback (most recent call last):\n"
                '  File "/tmp/mine.py", line 5, in <module>\n    main()\n'
                '  File "/tmp/mine.py", line 3, in main\n    print(x)\n          ^\n'
                "NameError: name 'x' is not defined\nthe end\n"
            ),
            (
                "Job entrypoint command failed with exit code 1\n"
                '  File "/tmp/mine.py", line 3, in main\n    print(x)\n          ^\n'
                "NameError: name 'x' is not defined"
            ),
        ),
        (
            (
                "Job entrypoint command failed with exit code 1, last available logs (x):\n"
                '\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.4)\x1b[0m   File "a.py", line 3, in f\n'
                "\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.4)\x1b[0m KeyError: 3\n"
                "error: give another --name\n"
            ),
            "Job entrypoint command failed with exit code 1\ngive another --name",
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


def test_an_error_that_a_job_handled_is_not_why_it_failed():
    log = '  File "a.py", line 3, in f\nKeyError: 3\n' + "goes on\n" * 50
    message = f"Job entrypoint command failed with exit code 3, last available logs (x):\n{log}"
    failed = Job(status=Status.FAILED, message=message)
    assert failure.of(failed) == "Job entrypoint command failed with exit code 3"
