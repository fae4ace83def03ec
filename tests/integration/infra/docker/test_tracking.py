"""The tracking server as a container, with generated images in a volume."""

from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.integration.infra.docker import hunt

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SEARCH = "/api/2.0/mlflow/experiments/search?max_results=9"
RUN = """\
import configparser, os
ini = configparser.ConfigParser()
ini.read(os.environ["TRAINYARD_TRACKING_CREDENTIALS_FILE"])
os.environ["MLFLOW_TRACKING_USERNAME"] = ini["mlflow"]["mlflow_tracking_username"]
os.environ["MLFLOW_TRACKING_PASSWORD"] = ini["mlflow"]["mlflow_tracking_password"]
import boto3, mlflow
mlflow.set_experiment("kept")
with mlflow.start_run():
    mlflow.log_metric("accuracy", 0.5, step=1)
    mlflow.log_text("as it was written", "hello.txt")
found = boto3.client("s3").list_objects_v2(Bucket="ray", Prefix="mlflow/")["Contents"]
print([item["Key"].rpartition("/")[2] for item in found])
"""


def test_a_container_keeps_what_was_logged_and_no_password(  # A45 F37
    volume: str, make_small_lab: Callable[..., Any]
) -> None:
    lab = make_small_lab(tracking="mlflow", dataset={"generate": True, "volume": volume})
    said = lab.stack.engine("up", "--yes").stderr
    assert "dataset: training: 1100 images in 11 classes" in said
    outputs = lab.stack.outputs()
    url, password = outputs["trackingUrl"], outputs["trackingPassword"]
    assert requests.get(url + SEARCH, timeout=30).status_code == 401
    known = ("admin", "password1234")
    assert requests.get(url + SEARCH, auth=known, timeout=30).status_code == 401
    evil = {"Host": "evil.example"}
    assert requests.get(url + SEARCH, headers=evil, timeout=30).status_code == 403
    code, output = lab.container("ray-worker-0").exec_run(["python", "-c", RUN])
    assert code == 0, output
    assert output.decode().splitlines()[-1] == "['hello.txt']"
    assert hunt.finds_of(lab, outputs) == []  # F35
    assert lab.container("mlflow").attrs["Config"]["User"] == "1000"
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")

    # The users go with the container, so the password of the next stack counts.
    lab.stack.engine("destroy", "--yes")
    # The images stay, and are not drawn again.
    assert "dataset: filled already, from generated: " in lab.stack.engine("up", "--yes").stderr
    again = lab.stack.outputs()["trackingPassword"]
    assert again != password
    assert requests.get(url + SEARCH, auth=("admin", password), timeout=30).status_code == 401
    found = requests.get(url + SEARCH, auth=("admin", again), timeout=30).json()
    assert {each["name"] for each in found["experiments"]} == {"Default", "kept"}
    lab.stack.engine("destroy", "--yes")
