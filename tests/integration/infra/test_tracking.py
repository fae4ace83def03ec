"""A stack that tracks runs, on generated images: who gets in, and which data stays or goes."""

import json
import shutil
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.job_submission import JobSubmissionClient

from tests import cells, pages, ran, status, stores

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

JOB_SECONDS = 180
SEARCH = "/api/2.0/mlflow/experiments/search?max_results=9"
# Reads the names in a node's environment, as a job does.
JOB = """\
import configparser, os
from pathlib import Path
file = Path(os.environ["TRAINYARD_TRACKING_CREDENTIALS_FILE"])
ini = configparser.ConfigParser()
ini.read(file)
os.environ["MLFLOW_TRACKING_USERNAME"] = ini["mlflow"]["mlflow_tracking_username"]
os.environ["MLFLOW_TRACKING_PASSWORD"] = ini["mlflow"]["mlflow_tracking_password"]
import mlflow
mlflow.set_experiment("kept")
with mlflow.start_run() as run:
    mlflow.log_param("side", 64)
    mlflow.log_metric("accuracy", 0.5, step=1)
    mlflow.log_text("as it was written", "notes/hello.txt")
print("artifacts:", run.info.artifact_uri)
print("mode:", oct(file.stat().st_mode & 0o777))
print("images:", len(list(Path(os.environ["FOOD11_DATA_DIR"]).glob("*/*/*.jpg"))))
"""


@pytest.fixture(scope="module")
def tracked(bring_up, store_program) -> Iterator[Any]:
    """A stack with a tracking server and generated images."""
    ran.output(["make", "notebook"], cwd=pages.ROOT)
    settings = {"tracking": "mlflow", "dataset": {"generate": True}, "startTimeoutSeconds": 500}
    settings["notebook"] = True
    with bring_up(**settings, objectStore="versitygw") as stack:
        yield stack


def _ask(
    outputs: dict[str, Any], path: str, password: str | None, **headers: str
) -> tuple[int, str]:
    """Return status and text of the tracking server's answer."""
    request = urllib.request.Request(outputs["trackingUrl"] + path, headers=headers)
    if password is not None:
        login = b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _run(outputs: dict[str, Any], folder: Path, wait_for: Callable[..., Any]) -> str:
    """Run the job; its log."""
    (folder / "job.py").write_text(JOB)
    headers = {"Authorization": f"Bearer {outputs['rayToken']}"}
    jobs = JobSubmissionClient(outputs["dashboardUrl"], headers=headers)
    job = jobs.submit_job(entrypoint="python job.py", runtime_env={"working_dir": str(folder)})
    wait_for(lambda: jobs.get_job_status(job).is_terminal(), JOB_SECONDS)
    log = jobs.get_job_logs(job)
    assert jobs.get_job_status(job) == "SUCCEEDED", log
    return log


def _artifacts(outputs: dict[str, Any]) -> dict[str, bytes]:
    """The tracking server's objects in the bucket."""
    client = stores.client_of(outputs)
    found = client.list_objects_v2(Bucket=outputs["bucket"], Prefix="mlflow/")
    return {
        item["Key"]: client.get_object(Bucket=outputs["bucket"], Key=item["Key"])["Body"].read()
        for item in found.get("Contents", [])
    }


def _listening(port: int) -> set[str]:
    return {
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }


def test_nothing_is_told_without_the_password(tracked):  # A45 F37
    outputs = tracked.outputs()
    assert _ask(outputs, "/health", None)[0] == 200
    for path in (SEARCH, "/", "/version", "/api/2.0/mlflow-artifacts/artifacts", "/signup"):
        for password in (None, "", "password1234", "password", outputs["rayToken"]):
            assert _ask(outputs, path, password)[0] == 401, (path, password)
    assert _ask(outputs, SEARCH, outputs["trackingPassword"])[0] == 200


def test_other_peoples_pages_are_refused(tracked):  # F37
    outputs = tracked.outputs()
    password = outputs["trackingPassword"]
    assert _ask(outputs, SEARCH, password, Host="evil.example")[0] == 403
    create = "/api/2.0/mlflow/experiments/create"
    body = json.dumps({"name": "theirs"}).encode()
    request = urllib.request.Request(outputs["trackingUrl"] + create, data=body)
    request.add_header("Content-Type", "application/json")
    request.add_header("Origin", "http://evil.example")
    login = b64encode(f"admin:{password}".encode()).decode()
    request.add_header("Authorization", f"Basic {login}")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=30)


def test_it_listens_here_only_and_runs_nothing_of_users(tracked, started_below):  # F33
    assert _listening(tracked.settings["trackingPort"]) == {"127.0.0.1"}
    # Published, and for nobody yet.
    assert _listening(tracked.settings["servePort"]) == set()
    commands = [" ".join(process.cmdline()) for process in started_below(tracked.folder)]
    assert any("uvicorn" in command for command in commands)
    assert not [command for command in commands if "huey" in command]


def test_a_cell_of_the_stacks_notebook_is_a_run(tracked):  # D20 D21
    url, _, token = tracked.outputs()["notebookUrl"].partition("/lab?token=")
    assert status.of(urllib.request.Request(f"{url}/api/contents")) == 403
    begin = "import os, trainyard; trainyard.run('cells')"
    log = "trainyard.log(acc=0.5, step=1)"
    *_, where = cells.run(url, token, begin, log, "print(os.getcwd())")
    assert where == f"{pages.ROOT}/docs\n"
    (shown,) = cells.run(url, token, "!train show cells")
    assert "SUCCEEDED" in shown
    assert "0.5" in shown


def test_images_that_vanished_are_drawn_again(tracked):  # F20
    shutil.rmtree(tracked.data / "food11" / "Food-11")
    tracked.engine("refresh", "--yes")
    done = tracked.engine("up", "--yes")
    assert "dataset: training: 1100 images in 11 classes" in done.stdout + done.stderr
    tracked.engine("up", "--yes", "--refresh", "--expect-no-changes")


def test_what_a_job_logs_outlives_the_stack_and_the_password_does_not(  # A45
    tracked, wait_for, tmp_path
):
    before = tracked.outputs()
    log = _run(before, tmp_path, wait_for)
    assert "artifacts: mlflow-artifacts:/" in log  # through the server: jobs need no other key
    assert "mode: 0o600" in log
    assert "images: 1760" in log
    assert before["trackingPassword"] not in log
    ((key, content),) = _artifacts(before).items()
    assert key.endswith("/notes/hello.txt")
    assert content == b"as it was written"

    tracked.engine("destroy", "--yes")
    done = tracked.engine("up", "--yes")
    assert "dataset: filled already, from generated: " in done.stdout + done.stderr
    after = tracked.outputs()
    assert after["trackingPassword"] != before["trackingPassword"]
    assert _ask(after, SEARCH, before["trackingPassword"])[0] == 401
    status, text = _ask(after, SEARCH, after["trackingPassword"])
    assert status == 200
    names = {found["name"] for found in json.loads(text)["experiments"]}
    assert names == {"Default", "kept"}
    assert _artifacts(after) == {key: content}
    assert before["trackingPassword"] not in "".join(tracked.said)
    assert after["trackingPassword"] not in "".join(tracked.said)
