"""The archive for a bug report, of a stack that is up, down, or faulty."""

import json
import subprocess
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests import secret_hunt, web
from trainyard.client import outputs as contract
from trainyard.client.dump import parts
from trainyard.client.outputs import DownError

ROOT_PASSWORD = "canary-root-0123456789-abc"  # known to the state only
NODES = [
    {"node_id": n, "node_ip": f"10.0.0.{n}", "state": "ALIVE", "is_head_node": n == "1"}
    for n in "12"
]
JOB = dict.fromkeys(("entrypoint", "message", "job_id", "end_time", "metadata"))
JOB |= {"type": "SUBMISSION", "status": "RUNNING"}
JOB["runtime_env"] = {"env_vars": {"WANDB_API_KEY": "of-the-user"}}
STATE = {
    "secrets": [ROOT_PASSWORD],
    "files": {
        "stack/outputs.json": {"bucket": "ray"},
        "services/store.log": f"root's password is {ROOT_PASSWORD}\n",
    },
    "unread": {"services/grafana.log": f"no answer to {ROOT_PASSWORD}"},
}


def head(token, keys):
    """A head with two nodes and some jobs, whose logs show what they must not."""
    listed = {"raylet": ["raylet.out"], "worker_out": ["worker-1.out"], "internal": ["x"]}
    jobs = [JOB | {"submission_id": f"../j{i}", "start_time": i} for i in range(1, 9)]
    answers = {
        "/api/v0/logs": {"data": {"result": listed}},
        "/api/v0/nodes": {"data": {"result": {"result": NODES}}},
        "/api/jobs/": jobs,
    }

    def answer(asked):
        assert asked.headers["Authorization"] == f"Bearer {token}"
        path, _, query = asked.path.partition("?")
        if path == "/api/v0/logs/file":
            if "j7" in query:
                return 500, b"Job j7 has no driver node id info."  # its packages were not had
            filename = query.partition("filename=")[2].partition("&")[0]
            return 200, f"{filename or query}\nBearer {token}, {keys}\n".encode()
        return (200, json.dumps(answers[path]).encode()) if path in answers else (500, b"busy")

    return answer


def content(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {each.name[11:]: tar.extractfile(each).read().decode() for each in tar}


@pytest.fixture
def up(values, monkeypatch, tmp_path):
    """A stack whose state and head answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "canary-of-the-environment")
    with web.serving(head(values["rayToken"], values["secretKey"])) as server:
        known = json.dumps(values | {"dashboardUrl": server.url, "prometheusUrl": server.url})
        monkeypatch.setattr(parts, "of_state", lambda _: STATE)
        monkeypatch.setattr(contract, "of_state", lambda _: contract.parse(known, None, "test"))
        yield values


def test_all_that_is_known_is_in_it_but_no_secret(up, train, tmp_path):  # F35
    assert train("debug-dump") == 0
    (path,) = tmp_path.glob("debug-dump-dev-*.tar.gz")
    assert f"wrote {path.name} (" in train.out
    assert "look at each file before you send this" in train.out
    found = content(path)
    agents = {f"ray/10.0.0.{i}.log" for i in (1, 2)}
    jobs = {f"jobs/..%2Fj{i}.log" for i in (4, 5, 6, 7, 8)}  # the newest
    lists = {"ray/nodes.json", "jobs/jobs.json"}
    assert found.keys() == {"index.md", "versions.json", *STATE["files"], *agents, *jobs, *lists}
    assert found["ray/10.0.0.2.log"] == "==> raylet.out <==\nraylet.out\nBearer ***, ***\n"
    assert found["jobs/..%2Fj7.log"] == ""
    assert json.loads(found["stack/outputs.json"]) == {"bucket": "ray"}
    assert '"env_vars": "***"' in found["jobs/jobs.json"]
    for missing in ("services/grafana.log", "ray/status.json", "monitoring/alerts.json"):
        assert f"- `{missing}`: " in found["index.md"]
    secrets = {name: up[name] for name in ("rayToken", "secretKey", "accessKey", "serveToken")}
    secrets |= {"root": ROOT_PASSWORD, "environment": "canary-of-the-environment"}
    places = [(name, text.encode()) for name, text in found.items()]
    assert secret_hunt.finds(secrets, [*places, ("said", train.out.encode())]) == []


def test_a_stack_that_is_down_has_its_settings_and_why(up, train, monkeypatch, tmp_path):
    down = DownError("stack 'dev' is down: run `make up`")
    monkeypatch.setattr(contract, "of_state", Mock(side_effect=down))
    assert train("debug-dump", "it.tar.gz") == 0
    found = content(tmp_path / "it.tar.gz")
    assert found.keys() == {"index.md", "versions.json", *STATE["files"]}
    assert "- `the cluster`: stack 'dev' is down" in found["index.md"]


def test_where_secrets_are_not_known_no_log_is_taken(up, train, monkeypatch, tmp_path):  # F35
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    refused = subprocess.CompletedProcess([], 1, "", "x\nerror: incorrect passphrase\n")
    monkeypatch.setattr(contract, "run_in_checkout", lambda *_: refused)
    monkeypatch.setattr(contract, "checkout", lambda: tmp_path)
    monkeypatch.setattr(contract, "of_state", lambda _: pytest.fail("asked the cluster"))
    assert train("debug-dump", "it.tar.gz") == 0
    found = content(tmp_path / "it.tar.gz")
    assert found.keys() == {"index.md", "versions.json"}
    assert "- `the cluster`: incorrect passphrase; without its secrets" in found["index.md"]


def test_outputs_of_a_file_need_no_state(up, train, outputs_file, monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "of_state", lambda _: pytest.fail("asked the state"))
    file = outputs_file(up | {"dashboardUrl": contract.of_state("dev").dashboard_url})
    assert train("debug-dump", "it.tar.gz", "--outputs", str(file)) == 0
    found = content(tmp_path / "it.tar.gz")
    assert "Bearer ***, ***\n" in found["jobs/..%2Fj8.log"]
