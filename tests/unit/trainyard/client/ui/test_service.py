"""The page as a service: who may look, and that it starts nothing."""

import json
import re
import signal

import pytest
import requests
from starlette.testclient import TestClient

from tests import ui_stack, waiting
from tests.ui_stack import VIEWER
from trainyard.client.ui.guard import HEADERS
from trainyard.client.ui.service import Password

PATHS = ["/", "/static/main.js", "/api/session", "/api/dev/jobs", "/api/commands", "/x"]


@pytest.fixture
def stranger(answering) -> TestClient:
    """A browser without the password."""
    return TestClient(Password(answering(read_only=True), *VIEWER))


@pytest.fixture
def viewer(stranger) -> TestClient:
    """A browser with the password."""
    stranger.auth = VIEWER
    return stranger


@pytest.mark.parametrize("path", PATHS)
def test_without_the_password_nobody_sees_anything(stranger, path):  # F37
    wrong = [("viewer", "wrong"), ("admin", VIEWER[1]), ("", ""), ("viewer", "\xff")]
    for auth in (None, *wrong):
        answer = stranger.get(path, auth=auth)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert "password" in answer.text
    for given in ("Basic", "Bearer canary-password", "\xff", "Basic \xff"):
        answer = stranger.get(path, headers={"Authorization": given.encode("latin1")})
        assert answer.status_code == 401
    assert stranger.get("/health").text == "up\n"


def test_a_viewer_sees_what_runs(viewer):
    assert viewer.get("/api/session").json() == {"stacks": ["dev"], "read_only": True}
    jobs = viewer.get("/api/dev/jobs").json()["rows"]
    assert [row["status"] for row in jobs] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert viewer.get("/api/dev/runs").json()["total"] == 2
    assert viewer.get("/api/dev/nodes").json()["rows"][0]["cpu"] == 12.5
    assert viewer.head("/").status_code == 200


def test_commands_are_shown_and_nothing_starts_them(viewer):
    job = viewer.get("/api/dev/jobs/raysubmit_000002").json()
    (stop,) = job["actions"]
    assert (stop["action"], stop["runs"]) == ("stop", False)
    assert stop["command"].endswith("train stop raysubmit_000002")
    found = viewer.get("/api/dev/compared", params={"runs": "run-0001"}).json()["runs"][0]
    services = viewer.get("/api/dev/services").json()["rows"][0]
    assert {each["runs"] for each in (*found["actions"], *services["actions"])} == {False}
    asked = {"stack": "dev", "action": "stop", "job": "raysubmit_000002"}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert viewer.request(method, "/api/commands", json=asked).status_code == 404
        for path in ("/", "/static/main.js", "/api/session", "/api/dev/jobs/raysubmit_000002"):
            assert viewer.request(method, path, json=asked).status_code == 405
    assert viewer.get("/api/commands").status_code == 404


def test_no_answer_has_a_secret(viewer, tmp_path):  # F35
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    secrets = {outputs["rayToken"], outputs["serveToken"], VIEWER[1]}
    paths = ["session", "dev/row", "dev/stack", "dev/nodes", "dev/jobs", "dev/runs", "dev/services"]
    paths += ["dev/jobs/raysubmit_000002", "dev/compared?runs=run-0001", "dev/sweeps", "other/row"]
    for path in paths:
        text = viewer.get(f"/api/{path}").text
        assert [each for each in secrets if each in text] == [], path


def test_every_answer_has_the_headers_of_the_page(viewer):
    answers = [viewer.get(path) for path in (*PATHS, "/health")]
    for answer in (*answers, viewer.get("/", auth=("viewer", "wrong"))):
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_it_serves_until_sigterm(head, store, tmp_path):
    with (
        ui_stack.up(head, tmp_path, store) as file,
        ui_stack.service_running(file) as (url, served),
    ):
        assert requests.get(f"{url}/api/dev/row", timeout=20).status_code == 401
        row = requests.get(f"{url}/api/dev/row", auth=VIEWER, timeout=20).json()
        assert row["health"] == "up"
        served.send_signal(signal.SIGTERM)
        out, err = served.communicate(timeout=waiting.DEADLINE_S)
    assert (served.returncode, out, err) == (-signal.SIGTERM, "", "")


@pytest.mark.parametrize("password", [None, " \n"])
def test_it_does_not_start_without_a_password(tmp_path, password):
    file = ui_stack.write_outputs(tmp_path / "outputs.json", "http://127.0.0.1:1", tmp_path)
    served = ui_stack.start_service(file, 0, password)
    _, err = served.communicate(timeout=waiting.DEADLINE_S)
    assert served.returncode == 1
    assert re.fullmatch(r"error: (no|the) password in \S+ .*: run `make up`\n", err), err
