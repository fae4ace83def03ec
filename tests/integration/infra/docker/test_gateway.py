"""A lab that others may use: from which addresses, through which ports, with which credentials.

The others are a network namespace with two addresses, one that is allowed and one that is not.
"""

import base64
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
import requests

from cluster.store_kind import Keys
from tests import pages, ran, stores
from tests.integration.infra.docker import hunt
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

(ASKED,) = pages.read_by(__file__)
ROOT = Path(__file__).resolve().parents[4]
LOOPBACK = "127.0.0.1"
HEALTH_PORT = 8404  # of the gateway itself
USERS_PORTS = {
    "dashboardPort",
    "objectStorePort",
    "objectStoreConsolePort",
    "prometheusPort",
    "grafanaPort",
    "notebookPort",
    "pagePort",
    "servePort",
}
# Runs on the others' side: requests as JSON on its command line, answers as JSON.
ASK = """\
import base64, json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def ask(question):
    source, host, port, path, headers = question
    headers = {"Host": f"{host}:{port}", **headers}
    lines = [f"GET {path} HTTP/1.0", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    try:
        with socket.create_connection((host, port), 5, (source, 0)) as link:
            link.sendall("\\r\\n".join(lines).encode())
            answer = link.makefile("rb").readline()
            return answer.split()[1].decode() if answer else "closed"
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:
        return "closed"
    except TimeoutError:
        return "dropped"
    except OSError as error:
        return error.strerror
with ThreadPoolExecutor(32) as pool:
    print(json.dumps(list(pool.map(ask, json.load(sys.stdin)))))
"""


Question = tuple[str, int, str, dict[str, str]]  # source, port, path, headers


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Another machine.

    Attributes:
        namespace: its name.
        host: address of this machine that it reaches.
        friend: its address that may use the lab, and that it uses when it has the choice.
        stranger: its address that may not.
    """

    namespace: str
    host: str
    friend: str
    stranger: str

    @property
    def inside(self) -> list[str]:
        """The beginning of a command line that runs there."""
        return ["ip", "netns", "exec", self.namespace]

    def ask(self, questions: list[Question]) -> list[str]:
        """HTTP status of the answer to each question, or its error."""
        done = subprocess.run(
            [*self.inside, sys.executable, "-c", ASK],
            input=json.dumps([(source, self.host, *rest) for source, *rest in questions]),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        answers: list[str] = json.loads(done.stdout)
        return answers


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("another machine is a network namespace here: it takes root and iproute2")
    name = f"ty{random.randrange(10**6)}"
    near, far = f"{name}a", f"{name}b"
    net = f"10.{random.randrange(64, 256)}.{random.randrange(256)}"
    found = Outside(namespace=name, host=f"{net}.1", friend=f"{net}.2", stranger=f"{net}.130")
    commands = (
        f"ip netns add {name}",
        f"ip link add {near} type veth peer name {far} netns {name}",
        f"ip address add {found.host}/24 dev {near}",
        f"ip link set {near} up",
        f"ip -n {name} link set lo up",
        f"ip -n {name} address add {found.friend}/24 dev {far}",
        f"ip -n {name} address add {found.stranger}/24 dev {far}",
        f"ip -n {name} link set {far} up",
    )
    try:
        for command in commands:
            done = ran.run(command.split())
            if done.returncode and command == commands[0]:
                pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
            assert done.returncode == 0, f"{command}: {done.stderr}"
        yield found
    finally:
        subprocess.run(["ip", "link", "delete", near], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def open_lab(make_lab, outside) -> Iterator[Any]:
    """A lab that the friend may use."""
    lab = make_lab(
        notebook=True,
        copied=True,
        workers=1,
        allowedCidrs=[f"{outside.friend}/32"],
        publishAddress=outside.host,
        keepData=False,
        objectStore="minio",
        page=True,
    )
    try:
        lab.stack.engine("up", "--yes")
        yield lab
        lab.stack.engine("destroy", "--yes")
        assert lab.nothing_is_there()
    finally:
        lab.remove()


@pytest.fixture(scope="module")
def outputs(open_lab) -> dict[str, Any]:
    found: dict[str, Any] = open_lab.stack.outputs()
    return found


@pytest.fixture
def outputs_file(outputs, tmp_path) -> Path:
    path = tmp_path / "outputs.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(outputs))
    return path


def _basic(password: str, user: str = "trainyard") -> dict[str, str]:
    coded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {coded}"}


def _expected(outputs: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, str], str]]:
    """Setting of the port, path, headers, and the answer to an allowed user."""
    dashboard = ("dashboardPort", "/api/version")
    prometheus = ("prometheusPort", "/api/v1/targets")
    page = ("pagePort", "/api/test/row")
    token = {"Authorization": f"Bearer {outputs['rayToken']}"}
    wrong = {"Authorization": "Bearer wrong"}
    return {
        "Ray without a token": (*dashboard, {}, "401"),
        "Ray with a wrong token": (*dashboard, wrong, "403"),
        "Ray": (*dashboard, token, "200"),
        "Prometheus without a password": (*prometheus, {}, "401"),
        "Prometheus with a wrong password": (*prometheus, _basic("wrong"), "401"),
        "Prometheus": (*prometheus, _basic(outputs["prometheusPassword"]), "200"),
        "MinIO": ("objectStorePort", "/minio/health/live", {}, "200"),
        "bucket without a key": ("objectStorePort", f"/{outputs['bucket']}", {}, "403"),
        "console": ("objectStoreConsolePort", "/", {}, "200"),
        "Grafana": ("grafanaPort", "/api/health", {}, "200"),
        "page without a password": (*page, {}, "401"),
        "page with the gateway's": (*page, _basic(outputs["prometheusPassword"], "viewer"), "401"),
        "page": (*page, _basic(outputs["pagePassword"], "viewer"), "200"),
        "notebook without a token": ("notebookPort", "/api/status", {}, "403"),
    }


def _answers(lab: Any, outputs: dict[str, Any], outside: Outside, source: str) -> dict[str, str]:
    expected = _expected(outputs)
    questions = [
        (source, lab.stack.settings[setting], path, headers)
        for setting, path, headers, _ in expected.values()
    ]
    return dict(zip(expected, outside.ask(questions), strict=True))


def test_who_is_allowed_gets_in_with_a_secret(open_lab, outputs, outside):  # F33 F37
    expected = {name: answer for name, (*_, answer) in _expected(outputs).items()}
    assert _answers(open_lab, outputs, outside, outside.friend) == expected


def test_the_command_of_the_page_gets_in(open_lab, outside):
    user = open_lab.stack.terminal("lab")
    theirs = {
        "192.0.2.10:9090": f"{outside.host}:{open_lab.stack.settings['prometheusPort']}",
        "curl": " ".join([*outside.inside, "curl"]),
    }
    assert '"status":"success"' in replace(user, instead={**user.instead, **theirs}).run(ASKED)


def test_the_page_shows_the_stacks_jobs_and_starts_none(outputs):  # F37
    cluster = {"Authorization": f"Bearer {outputs['rayToken']}"}
    job = {"entrypoint": "echo seen", "submission_id": "shown", "metadata": {"run": "first"}}
    jobs = f"{outputs['dashboardUrl']}/api/jobs/"
    requests.post(jobs, json=job, headers=cluster, timeout=60).raise_for_status()
    url, viewer = outputs["pageUrl"], ("viewer", outputs["pagePassword"])

    def asked(path: str) -> dict[str, Any]:
        answer = requests.get(f"{url}/api/{path}", auth=viewer, timeout=60)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    assert asked("session") == {"stacks": ["test"], "read_only": True}
    (row,) = wait_for("the job", lambda: [r for r in asked("test/jobs")["rows"] if r["job"]])
    assert (row["job"], row["run"]) == ("shown", "first")
    nodes = asked("test/nodes")
    assert len(nodes["rows"]) == 2
    assert nodes["fault"] == ""  # Prometheus answers it
    assert asked("test/runs")["total"] == 0  # of the store
    with requests.get(
        f"{url}/api/test/jobs/shown/log", auth=viewer, timeout=60, stream=True
    ) as log:
        assert "seen" in log.text
    stop = {"stack": "test", "action": "stop", "job": "shown"}
    headers = {"X-Trainyard-Token": ""}
    refused = requests.post(
        f"{url}/api/commands", json=stop, auth=viewer, headers=headers, timeout=60
    )
    assert refused.status_code == 404


def test_nobody_else_gets_in(open_lab, outputs, outside):
    # F33
    answers = _answers(open_lab, outputs, outside, outside.stranger)
    assert set(answers.values()) == {"closed"}, answers


def _ports(lab: Any) -> dict[str, int]:
    """Every fixed port of a stack, by the setting that changes it."""
    ports = {key: port for key, port in lab.stack.settings.items() if key.endswith("Port")}
    agents = range(1, lab.stack.settings["workers"] + 1)
    ports |= {f"agentPort + {index}": ports["agentPort"] + index for index in agents}
    return ports | {"health of the gateway": HEALTH_PORT}


def test_what_listens_is_the_gateway_and_loopback(open_lab, outside):  # F33
    ports = _ports(open_lab)
    listening = {
        (connection.laddr.ip, connection.laddr.port)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port in ports.values()
    }
    assert listening == {
        (address, ports[key]) for address in (LOOPBACK, outside.host) for key in USERS_PORTS
    }


def test_the_gateway_sees_who_connects(open_lab, outputs, outside):
    _answers(open_lab, outputs, outside, outside.friend)
    log = open_lab.container("gateway").logs().decode()
    assert f"\n{outside.friend}:" in log
    assert hunt.finds_of(open_lab, outputs) == []  # F35


@pytest.mark.parametrize("from_outside", [True, False], ids=["elsewhere", "here"])
def test_the_client_works_with_the_outputs(outputs, outputs_file, outside, from_outside):
    addresses = ("dashboardUrl", "prometheusUrl", "objectStoreEndpoint", "grafanaUrl", "pageUrl")
    for name in (*addresses, "notebookUrl"):
        assert outputs[name].startswith(f"http://{outside.host}:"), name
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    for command, said in (("list", "job\t"), ("runs", "run\t")):
        done = ran.run(
            [
                *(outside.inside if from_outside else []),
                sys.executable,
                "-m",
                "trainyard.client",
                command,
            ],
            cwd=ROOT,
            env={**kept, "TRAINYARD_OUTPUTS": str(outputs_file)},
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.lower().startswith(said)


def test_containers_refuse_what_was_rotated(open_lab, outside):  # F43
    def asked(outputs: dict[str, Any]) -> list[int]:
        (token,) = parse_qs(urlsplit(outputs["notebookUrl"]).query)["token"]
        ports = open_lab.stack.settings
        logins = {
            "dashboardPort": ("/api/version", {"Authorization": f"Bearer {outputs['rayToken']}"}),
            "prometheusPort": ("/api/v1/targets", _basic(outputs["prometheusPassword"])),
            "notebookPort": ("/api/status", {"Authorization": f"token {token}"}),
        }
        answers = map(
            int, outside.ask([(outside.friend, ports[key], *each) for key, each in logins.items()])
        )
        keys = Keys(access=outputs["accessKey"], secret=outputs["secretKey"])
        where = outputs["objectStoreEndpoint"]
        return [*answers, stores.status_of(where, outputs["bucket"], keys)]

    before = open_lab.stack.outputs()
    assert asked(before) == [200] * 4
    names = ("gateway-password", "notebook-token", "object-store-training", "ray-token")
    open_lab.change(rotated=dict.fromkeys(names, 1))
    open_lab.stack.engine("up", "--yes")
    assert asked(before) == [403, 401, 403, 403]
    assert asked(open_lab.stack.outputs()) == [200] * 4
