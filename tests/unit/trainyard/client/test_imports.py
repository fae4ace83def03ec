"""Packages that commands do not import: each takes tenths of a second of processor time."""

import json
import sys

import pytest
import ray

from tests import ran, web
from trainyard.client import extras
from trainyard.tracking.runs import Run

SLOW = {
    *("aiohttp", "asyncio", "asyncssh", "boto3", "botocore", "cryptography", "httpx", "matplotlib"),
    *("minio", "numpy", "pandas", "psutil", "pyarrow", "pydantic", "ray", "requests", "rich"),
    *("torch", "urllib3", "yaml"),
}
# Needed to reach the head, whose answers are JSON, or the bucket.
HTTP = {"urllib3"}
S3 = {"botocore", "urllib3"}
JOB = {
    "type": "SUBMISSION",
    "submission_id": "s1",
    "job_id": None,
    "status": "PENDING",
    "entrypoint": "python x.py",
    "message": "",
    "start_time": 1,
    "end_time": None,
    "metadata": {"run": "first", "demand": "[]"},
    "runtime_env": {},
}
REPLIES = {
    "/api/version": {"ray_version": ray.__version__},
    "/api/jobs/": [JOB],
    "/api/jobs/s1": JOB,
    "/api/jobs/s1/stop": {"stopped": True},
    "/api/serve/applications/": {"applications": {}},
    "/nodes": {"data": {"summary": []}},
}
PROGRAM = """
import atexit, importlib.metadata, json, sys
slow, missing, *sys.argv[1:] = json.loads(sys.argv[1])
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
def version(name, of=importlib.metadata.version):
    if name in missing:
        raise importlib.metadata.PackageNotFoundError(name)
    return of(name)
sys.meta_path.insert(0, Missing())
importlib.metadata.version = version
atexit.register(lambda: print(json.dumps(sorted({*slow} & {*sys.modules}))))
from trainyard.client import cli
cli.main()
"""


def answer(asked):
    """As a head with one job, whose state API is empty, and an empty bucket."""
    path = asked.path.partition("?")[0]
    if asked.command == "POST" and path == "/api/jobs/":
        body = json.dumps({"submission_id": "s1"})
    elif path.startswith("/api/packages/"):
        body = ""
    elif path == "/api/v0/logs/file":
        body = "a line\n"
    elif path.startswith("/api/v0/"):
        body = json.dumps({"data": None})
    elif path.startswith("/ray"):
        body = "<ListBucketResult/>"
    else:
        body = json.dumps(REPLIES[path])
    return 200, body.encode()


@pytest.fixture(scope="module")
def address():
    with web.serving(answer) as server:
        yield server.url


def imported(*arguments, missing=()):
    """The exit status of a command, and the slow packages that it has imported.

    Some packages are missing, as in an environment without an extra.
    """
    done = ran.run(
        [sys.executable, "-c", PROGRAM, json.dumps([sorted(SLOW), [*missing], *arguments])]
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (["info"], HTTP),
        (["dashboard", "--print"], set()),
        (["tunnel"], set()),
        (["list"], HTTP),
        (["status", "s1"], HTTP),
        (["logs", "s1"], HTTP),
        (["stop", "s1"], HTTP),
        (["services"], HTTP),
        (["runs"], HTTP),
        (["show", "first"], set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_no_more_than_it_needs(  # P5
    command, needed, address, values, outputs_file
):
    Run(values["storageUrl"], "first").start({"epochs": 1})
    file = outputs_file(values | {"dashboardUrl": address})
    assert imported(*command, "--outputs", str(file)) == (0, needed)


def test_a_pull_from_a_folder_takes_nothing_of_a_bucket(values, outputs_file, tmp_path):  # P5
    Run(values["storageUrl"], "first").start({"epochs": 1})
    file = str(outputs_file(values))
    home = str(tmp_path / "home")
    assert imported("pull", "first", "--to", home, "--outputs", file) == (0, set())


def test_runs_of_a_bucket_take_its_signatures_alone(address, values, outputs_file):  # P5
    store = {"storageUrl": "s3://ray", "objectStoreEndpoint": address, "bucket": "ray"}
    file = outputs_file(values | store | {"dashboardUrl": address})
    assert imported("runs", "--outputs", str(file)) == (0, S3)


@pytest.mark.parametrize("command", [["--help"], ["submit", "--help"], ["--version"], ["nothing"]])
def test_help_imports_nothing_slow(command):  # P18
    assert imported(*command)[1] == set()


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["new", "mine"],
        ["init", "project"],
        ["submit", "alexnet", "--", "--help"],
        ["submit", "--no-wait", "--force", "alexnet"],
        ["runs"],
        ["list"],
    ],
    ids=" ".join,
)
def test_the_client_alone_needs_no_extra(command, address, values, outputs_file, monkeypatch):
    monkeypatch.chdir(outputs_file(values | {"dashboardUrl": address}).parent)
    monkeypatch.setenv("TRAINYARD_OUTPUTS", "outputs.json")
    missing = [module for modules in extras.MODULES.values() for module in modules]
    assert imported(*command, missing=missing)[0] == 0
