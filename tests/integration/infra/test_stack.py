"""A whole stack: its exports, the rights of users and jobs, and the faults it survives."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError
from ray.job_submission import JobSubmissionClient

from engine.state import Backend
from engine.values import secret_strings
from tests import pages, quick, ran, status, stores, web
from tests.client import Train
from tests.integration.infra import hostile_job, scan
from tests.outputs import names_of_outputs
from tests.ports import free_ports
from tests.secret_hunt import finds, forms
from trainyard.client import outputs as contract
from trainyard.client.store import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36"
AGENT = "ray::DashboardAgent"
(PACKAGES,) = pages.read_by(__file__)


@pytest.fixture(scope="module")
def outputs(stack) -> dict[str, Any]:
    result: dict[str, Any] = stack.outputs()
    return result


@pytest.fixture
def runs(outputs) -> Callable[[str], bool]:
    """Whether a service runs: one that is not on PATH does not."""
    optional = {"prometheus": "prometheusUrl", "versitygw": "objectStoreEndpoint"}
    return lambda service: service not in optional or bool(outputs[optional[service]])


@pytest.fixture
def prometheus(outputs) -> str:
    if not outputs["prometheusUrl"]:
        pytest.skip("no Prometheus runs")
    return str(outputs["prometheusUrl"])


@pytest.fixture
def bucket(outputs) -> str:
    if not outputs["bucket"]:
        pytest.skip("no object store runs, for there is no Go")
    return str(outputs["bucket"])


@pytest.fixture
def jobs(outputs) -> JobSubmissionClient:
    headers = {"Authorization": f"Bearer {outputs['rayToken']}"}
    return JobSubmissionClient(outputs["dashboardUrl"], headers=headers)


def _request(
    url: str,
    method: str,
    path: str,
    token: str | None,
    body: dict[str, Any] | None = None,
    **headers: str,
) -> int:
    request = urllib.request.Request(
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **headers},
    )
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    return status.of(request)


def _alive(outputs: dict[str, Any]) -> set[str]:
    """Ids of the nodes: a restarted node has another one."""
    try:
        nodes = status.ask(f"{outputs['dashboardUrl']}/nodes?view=summary", outputs["rayToken"])
    except OSError:
        return set()
    raylets = [node["raylet"] for node in nodes["data"]["summary"]]
    return {raylet["nodeId"] for raylet in raylets if raylet.get("state") == "ALIVE"}


def test_a_second_up_changes_nothing(stack):  # F20
    stack.engine("up", "--yes", "--expect-no-changes")
    stack.engine("refresh", "--yes", "--expect-no-changes")


def test_the_outputs_are_the_contract(stack, outputs):
    assert set(outputs) == names_of_outputs()
    folder = (stack.data / "storage").as_uri()
    assert outputs["storageUrl"] == ("s3://ray" if outputs["bucket"] else folder)
    assert [node["name"] for node in outputs["nodes"]] == ["ray-head", "ray-worker-0"]
    hidden = stack.engine("output", "--json").stdout
    secrets = [each for each in (outputs["rayToken"], outputs["secretKey"]) if each]
    assert not [each for each in secrets if each in hidden]


def test_a_job_runs_and_reaches_the_store_without_a_secret_of_its_own(
    jobs, wait_for, tmp_path
):  # P7
    (tmp_path / "job.py").write_text(
        "import os, boto3, psutil, ray\n"
        "import pyarrow.fs\n"
        "ray.init()\n"
        "url = os.environ['TRAINYARD_STORAGE_URL']\n"
        "fs, path = pyarrow.fs.FileSystem.from_uri(url + '/a')\n"
        "with fs.open_output_stream(path) as file:\n"
        "    file.write(b'x' * 10)\n"
        "print('size', fs.get_file_info(path).size)\n"
        "if url.startswith('s3://'):\n"
        "    key = {'Bucket': url.removeprefix('s3://'), 'Key': 'a'}\n"
        "    assert boto3.client('s3').head_object(**key)['ContentLength'] == 10\n"
        "fs.delete_file(path)\n"
        "def worker():\n"
        "    me = psutil.Process()\n"
        "    jemalloc = any('libjemalloc' in each.path for each in me.memory_maps())\n"
        "    return f'is as nice as its raylet: {me.nice() == me.parent().nice()}, {jemalloc}'\n"
        "print('worker', ray.get(ray.remote(num_cpus=1)(worker).remote()))\n"
    )
    job = jobs.submit_job(entrypoint="python job.py", runtime_env={"working_dir": str(tmp_path)})
    wait_for(lambda: jobs.get_job_status(job).is_terminal(), 120)
    log = jobs.get_job_logs(job)
    assert jobs.get_job_status(job) == "SUCCEEDED", log
    assert "size 10" in log
    assert "worker is as nice as its raylet: True, True" in log


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_job_started_ends_with_it(code, jobs, wait_for, tmp_path):
    """Children of its driver, of a task and of a killed worker; its own end is reported truly."""
    (tmp_path / "job.py").write_text(
        "import os, signal, subprocess, sys\n"
        "import ray\n"
        "def child():\n"
        "    print('child', subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "child()\n"
        "ray.init(log_to_driver=True)\n"
        "ray.get(ray.remote(num_cpus=0)(child).remote())\n"
        "@ray.remote(num_cpus=0)\n"
        "class Worker:\n"
        "    def child(self):\n"
        "        child()\n"
        "    def end(self):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "worker = Worker.remote()\n"
        "ray.get(worker.child.remote())\n"
        "try:\n"
        "    ray.get(worker.end.remote())\n"
        "except ray.exceptions.RayError:\n"
        f"    sys.exit({code})\n"
    )
    job = jobs.submit_job(entrypoint="python job.py", runtime_env={"working_dir": str(tmp_path)})
    wait_for(lambda: jobs.get_job_status(job).is_terminal(), 120)
    started = re.compile(r"child (\d+)$", re.MULTILINE)
    wait_for(lambda: len(set(started.findall(jobs.get_job_logs(job)))) == 3, 30)
    log = jobs.get_job_logs(job)
    assert jobs.get_job_status(job) == ("FAILED" if code else "SUCCEEDED"), log
    children = {int(pid) for pid in started.findall(log)}
    wait_for(lambda: not any(map(_lives, children)), 30)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_log_of_a_job_on_a_worker_is_read_whole_and_once(jobs, wait_for, tmp_path):  # D34
    (tmp_path / "job.py").write_text(
        "import ray\n"
        "ray.init()\n"
        "ray.get(ray.remote(num_cpus=0)(lambda: print('of a task')).remote())\n"
        "print('of the job')\n"
    )
    job = jobs.submit_job(
        entrypoint="python job.py",
        entrypoint_num_cpus=1,  # which the head has not
        runtime_env={"working_dir": str(tmp_path)},
    )
    wait_for(lambda: jobs.get_job_status(job).is_terminal(), 120)
    wait_for(lambda: "of a task" in jobs.get_job_logs(job), 30)
    log = jobs.get_job_logs(job)
    assert jobs.get_job_status(job) == "SUCCEEDED", log
    assert log.count("of the job") == log.count("of a task") == 1, log


def test_a_hostile_job_has_what_its_user_has(stack, bucket, outputs_file, train, tmp_path):  # F44
    """Processes of one user: docs/security.md says what that is, and a container is the answer."""
    store = open_store(contract.read(None, outputs_file))
    store.write("other/result", b"of another run")
    root = stack.folder / "versitygw" / "files" / "root-password"
    states = stack.project.parent / "backend" / ".pulumi" / "stacks"
    secrets = hostile_job.of_this_machine(stack, tmp_path) | {"root": root.read_text()}
    folders = (str(tmp_path), str(stack.folder / "versitygw"), str(states))
    asked = hostile_job.arguments(secrets, folders=folders, key="other/result")
    # Such as the shell in which the passphrase was exported.
    with subprocess.Popen(["cat"], env=stack.environment, stdin=subprocess.PIPE) as shell:
        job = train("submit", *hostile_job.script(tmp_path), "--", asked)
        said, errors = job.communicate(timeout=120)
        shell.stdin.close()
    store.delete("other/result")
    assert job.returncode == 0, said + errors
    got = hostile_job.report(said)
    assert got["secrets"] == {
        "key": [str(tmp_path / "id_ed25519")],
        "passphrase": ["/proc/*/environ"],
        "root": [str(root)],
        "state": sorted(map(str, states.rglob("test.json*"))),
    }
    assert "other runs" in got["rights"]


@contextmanager
def _index() -> Iterator[str]:
    """An empty package index; below /silent it never answers."""
    ended = threading.Event()

    def answer(asked: web.Request) -> web.Said:
        if asked.path.startswith("/silent"):
            ended.wait()
        return 404, b""

    with web.serving(answer) as server:
        yield server.url
        ended.set()


def test_a_package_that_is_not_to_be_had_ends_a_job_and_is_named(train, tmp_path):  # F30
    ((submit, script, option, wanted),) = PACKAGES.of("train")
    (tmp_path / script).write_text("print('it ran')\n")
    with _index() as url:
        jobs = {}
        for index, config in (("simple", {}), ("silent", {"setup_timeout_seconds": 2})):
            file = tmp_path / f"{index}-{wanted}"
            # Each has its own: Ray makes equal lists in one folder, at the same time.
            env = {"pip": [f"not-in-{index}"], "env_vars": {"PIP_INDEX_URL": f"{url}/{index}"}}
            file.write_text(json.dumps(env | {"config": config}))
            asked = (option, str(file), "--name", index)
            jobs[index] = train(submit, str(tmp_path / script), *asked)
        said = {index: "".join(job.communicate(timeout=120)) for index, job in jobs.items()}
    assert [job.returncode for job in jobs.values()] == [1, 1], said
    assert "ERROR: No matching distribution found for not-in-simple" in said["simple"]
    assert "not-in-silent (pip) not installed within 2 s" in said["silent"]
    assert not [text for text in said.values() if "it ran" in text or "Traceback" in text]


REQUESTS = [
    ("GET", "/api/jobs/", None),
    ("POST", "/api/jobs/", {"entrypoint": "touch CANARY"}),
    ("DELETE", "/api/jobs/none", None),
    ("POST", "/api/jobs/none/stop", None),
    ("GET", "/api/v0/logs/file?node_id=x&filename=../../etc/passwd", None),
    ("GET", "/log_proxy?url=http://127.0.0.1:1/", None),
    ("GET", "/api/prometheus/sd", None),
    ("GET", "/api/cluster_status", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
@pytest.mark.parametrize(
    "headers",
    [{}, {"User-Agent": BROWSER, "Origin": "http://evil.example"}, {"Host": "evil.example"}],
    ids=["plain", "browser", "foreign-host"],
)
def test_nothing_answers_without_the_right_token(  # F34
    stack, outputs, tmp_path, method, path, body, headers
):
    canary = tmp_path / "canary"
    body = body and {"entrypoint": f"touch {canary}"}
    head = f"http://127.0.0.1:{stack.settings['dashboardPort']}"
    assert outputs["dashboardUrl"] != head  # that is the queue's
    for url, refusal in ((outputs["dashboardUrl"], 401), (head, 403)):
        none = _request(url, method, path, None, body, **headers)
        wrong = _request(url, method, path, "0" * 64, body, **headers)
        if "Origin" in headers and url == head:
            assert none in (401, 403, 405)
            assert wrong in (403, 405)
        else:
            assert (none, wrong) == (401, refusal)
    assert not canary.exists()


def test_the_right_token_is_answered(outputs):  # F34
    url, token = outputs["dashboardUrl"], outputs["rayToken"]
    for path in ("/api/jobs/", "/api/prometheus/sd", "/nodes?view=summary"):
        assert _request(url, "GET", path, token) == 200
    assert _request(url, "GET", "/log_proxy?url=http://127.0.0.1:1/", token) == 404
    passwd = "/api/v0/logs/file?node_ip=127.0.0.1&filename=../../../../etc/passwd"
    assert _request(url, "GET", passwd, token) != 200


@pytest.fixture
def plain_environment(tmp_path) -> dict[str, str]:
    """An environment without any Ray token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def node_folder(short_folder) -> Iterator[Path]:
    yield short_folder
    for process in psutil.process_iter():
        with_folder = f"--temp-dir={short_folder}"
        try:
            if with_folder in process.cmdline():
                process.kill()
        except psutil.Error:
            continue


def test_a_node_without_the_token_cannot_join(  # F34
    stack, outputs, plain_environment, node_folder
):
    before = _alive(outputs)
    command = [Path(sys.executable).parent / "ray", "start", "--block", "--num-cpus=1"]
    command += [f"--address=127.0.0.1:{stack.settings['gcsPort']}", f"--temp-dir={node_folder}"]
    command += ["--dashboard-agent-listen-port=0", "--object-store-memory=100000000"]
    with subprocess.Popen(
        command,
        env={**plain_environment, "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as node:
        try:
            assert node.stdout is not None
            # It tries again and again: the first refusal is enough.
            refused = next((line for line in node.stdout if "authentic" in line.lower()), "")
        finally:
            node.kill()
    assert refused
    assert _alive(outputs) == before


def test_a_ray_client_without_the_token_is_refused(stack, plain_environment, tmp_path):  # F34
    canary = tmp_path / "canary"
    script = (
        f"import ray, pathlib; ray.init('ray://127.0.0.1:{stack.settings['rayClientPort']}')\n"
        f"ray.get(ray.remote(lambda: pathlib.Path({str(canary)!r}).touch()).remote())\n"
    )
    done = ran.run(
        [sys.executable, "-c", script],
        env={
            **plain_environment,
            "RAY_AUTH_MODE": "disabled",
            "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "1",
            "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "1",
        },
        timeout=90,
    )
    assert done.returncode != 0
    assert re.search("(?i)authenticat|connect", done.stderr)
    assert not canary.exists()


WORD = re.compile(r"[A-Za-z0-9_.-]{20,}")  # the parts of a secret file that others could use
NAME = re.compile("[a-z_]+")


def _secrets(stack: Any, outputs: dict[str, Any]) -> set[str]:
    """Every secret output, and the content of every secret of the state."""
    masked = json.loads(stack.engine("output", "--json").stdout)
    found = {text for key, text in outputs.items() if text and masked[key] == "[secret]"}
    backend = Backend(f"file://{stack.project.parent}/backend", stack.project)
    passphrase = stack.environment["PULUMI_CONFIG_PASSPHRASE"]
    for entry in backend.load("trainyard", "test", passphrase).resources:
        kept = {key: value for key, value in entry.get("outputs", {}).items() if key[0] != "_"}
        for text in secret_strings(kept):
            # A word of only small letters is a name, such as a key of S3's settings.
            found.update(word for word in WORD.findall(text) if not NAME.fullmatch(word))
    return found


def test_the_archive_for_a_bug_report_is_whole_and_has_no_secret(  # F35
    stack, outputs, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(stack.project)
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    run, train = contract.run_in_checkout, Train(monkeypatch, capsys)
    asked: list[str] = []

    def run_quickly(command: list[str], seconds: float) -> Any:
        if "infra.operate.debug_dump" in command:
            command = [sys.executable, *quick.module(command[3]), *command[4:]]
        done = run(command, seconds)
        asked.append(done.stdout)
        return done

    monkeypatch.setattr(contract, "run_in_checkout", run_quickly)
    with quick.counting(stack.environment):
        assert train("debug-dump", str(tmp_path / "it.tar.gz"), "-s", "test") == 0
    with tarfile.open(tmp_path / "it.tar.gz") as tar:
        kept = {each.name: tar.extractfile(each).read() for each in tar}
    assert b"Could not be read" not in kept["debug-dump/index.md"], kept["debug-dump/index.md"]
    logs = [text for name, text in kept.items() if "/services/" in name]
    assert len(logs) >= 3
    assert all(text.startswith(b"health: well\n") for text in logs)
    assert any(b"==> raylet" in text for name, text in kept.items() if "/ray/" in name)
    secrets = {f"secret {n}": text for n, text in enumerate(_secrets(stack, outputs))}
    secrets["passphrase"] = stack.environment["PULUMI_CONFIG_PASSPHRASE"]
    assert finds(secrets, [*kept.items(), ("said", train.out.encode())]) == []
    assert finds(secrets, [("asked", "".join(asked).encode())])  # before they are hidden


def test_no_secret_lies_about(stack, outputs):  # F35
    secrets = _secrets(stack, outputs)
    assert {outputs["rayToken"], outputs["secretKey"]} - {""} <= secrets
    files = stack.folder / "versitygw" / "files"
    if outputs["bucket"]:
        assert {(files / "root-user").read_text(), (files / "root-password").read_text()} <= secrets
    hunted = re.compile(b"|".join({re.escape(form) for text in secrets for form in forms(text)}))
    allowed = 0
    for top in (stack.folder, stack.data, stack.project.parent / "backend", stack.project):
        for path in top.rglob("*"):
            if not path.is_file() or path.is_symlink() or not hunted.search(path.read_bytes()):
                continue
            # The store keeps its users' keys in its own folder, and forgets them with the user.
            own = stack.data / "versitygw/meta/users"
            expected = path.parent.name == "files" or path.is_relative_to(own)
            assert expected, f"{path} holds a secret"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            allowed += 1
    # Without a store, two of its root user and its training user's keys are missing.
    least = 6 if outputs["bucket"] else 4
    assert allowed >= least, "the hunt found fewer secret files than there are: it hunts nothing"
    # Encrypted, and still private: the state, the former one, its backups.
    states = [*stack.project.parent.glob("backend/.pulumi/**/*.json*")]
    assert len(states) >= 2  # one, and the one before the newest change
    assert {stat.S_IMODE(path.stat().st_mode) for path in states} == {0o600}
    everything = "".join(stack.said).encode()
    assert everything
    assert not hunted.search(everything)
    for process in psutil.process_iter():
        try:
            line = "\0".join(process.cmdline()).encode()
            environment = "\0".join(process.environ().values()).encode()
        except psutil.Error:
            continue
        assert not hunted.search(line), process
        if str(stack.folder) in environment.decode(errors="replace"):
            assert not hunted.search(environment), process
            assert stack.environment["PULUMI_CONFIG_PASSPHRASE"].encode() not in environment, (
                process
            )
    told = status.ask(f"{outputs['dashboardUrl']}/api/jobs/", outputs["rayToken"])
    assert not hunted.search(json.dumps(told).encode())


# All listeners of a stack of processes: service, program, address, and the setting of the port, ""
# for one that the kernel chose. docs/security.md says what protects it.
LISTENS = {
    ("prometheus", "prometheus", "loopback", "prometheusPort"),
    ("queue", "python3", "loopback", "queuePort"),
    ("ray-head", "gcs_server", "all", "gcsPort"),
    ("ray-head", "python", "all", "autoscalerMetricsPort"),
    ("ray-head", "python", "all", "dashboardMetricsPort"),
    ("ray-head", "python", "head", "rayClientPort"),
    ("ray-head", "python", "loopback", "dashboardPort"),
    ("ray-head", "python", "loopback", "rayClientPort"),
    ("ray-head", "ray::DashboardAgent", "all", ""),
    ("ray-head", "ray::DashboardAgent", "head", "agentPort"),
    ("ray-head", "ray::DashboardAgent", "loopback", "agentPort"),
    ("ray-head", "ray::RuntimeEnvAgent", "head", ""),
    ("ray-head", "raylet", "all", ""),
    ("ray-worker-0", "ray::DashboardAgent", "all", ""),
    ("ray-worker-0", "ray::DashboardAgent", "loopback", "agentPort"),
    ("ray-worker-0", "ray::DashboardAgent", "worker", "agentPort"),
    ("ray-worker-0", "ray::RuntimeEnvAgent", "worker", ""),
    ("ray-worker-0", "raylet", "all", ""),
    ("versitygw", "versitygw", "loopback", "objectStoreConsolePort"),
    ("versitygw", "versitygw", "loopback", "objectStorePort"),
}
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Answers of the listeners on all interfaces without the token (scan.py).
ANSWERS = {
    ("gcs_server", "token, but for channels"),
    ("raylet", "token, but for channels"),
    (AGENT, "token"),
    (AGENT, "metrics"),
    ("python", "metrics"),  # of the dashboard and the autoscaler
}


def _program(process: psutil.Process) -> str:
    """Name of a program; the ones that Go builds here end with their version."""
    return process.name().partition("-v")[0]


def _address(text: str) -> str:
    if text in ("0.0.0.0", "::"):
        return "all"
    return {"127.0.0.1": "loopback", "::1": "loopback", "127.0.0.2": "head", "127.0.0.3": "worker"}[
        text.removeprefix("::ffff:")
    ]


def _listening(stack: Any, started_below: Any) -> list[tuple[int, tuple[str, str, str, str]]]:
    """Ports of all processes of a stack, in the form of LISTENS."""
    settings = {port: key for key, port in stack.settings.items() if key.endswith("Port")}
    settings[stack.settings["agentPort"] + 1] = "agentPort"
    found = []
    names = {
        each: each.environ().get("SUPERVISOR_PROCESS_NAME") for each in started_below(stack.folder)
    }
    for process, service in names.items():
        # Some of Ray overwrite their environment: they are looked at below a program that has one.
        if service is None:
            assert process.net_connections("inet") == [] or any(map(names.get, process.parents()))
            continue
        for child in _family(process):
            for connection in child.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    address, port = connection.laddr
                    listens = (service, _program(child), _address(address), settings.get(port, ""))
                    found.append((port, listens))
    return found


def test_nothing_listens_but_what_is_listed(stack, started_below, runs):  # F33
    found = {
        each
        for _, each in _listening(stack, started_below)
        # Actors and workers come and go with jobs; their port is one of the kernel's.
        if not each[1].startswith("ray::") or each[1] in AGENTS or each[3]
    }
    expected = {each for each in LISTENS if runs(each[0])}
    assert found == expected, "\n".join(map(str, sorted(found)))


@contextmanager
def _neighbour() -> Iterator[tuple[list[str], str]]:
    """A runner of commands elsewhere in a network, and this machine's address from there."""
    name, network = f"ty-{os.getpid()}", f"10.79.{os.getpid() % 256}"
    try:
        for command in (
            f"ip netns add {name}",
            f"ip link add {name} type veth peer name eth0 netns {name}",
            f"ip address add {network}.1/30 dev {name}",
            f"ip link set {name} up",
            f"ip -n {name} address add {network}.2/30 dev eth0",
            f"ip -n {name} link set eth0 up",
        ):
            subprocess.run(command.split(), check=True)
        yield ["nsenter", f"--net=/run/netns/{name}"], f"{network}.1"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


def _makes_networks() -> bool:
    if os.getuid() != 0 or not shutil.which("ip"):
        return False
    return subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


@pytest.mark.skipif(
    not _makes_networks(), reason="a neighbour needs root, ip and permission for network namespaces"
)
def test_a_neighbour_reaches_what_is_listed_and_is_asked_for_the_token(stack, started_below):  # F33
    before = _listening(stack, started_below)
    with _neighbour() as (elsewhere, address):
        ports = {str(port) for port, _ in before}
        command = [*elsewhere, sys.executable, scan.__file__, address, *ports]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    after = {port for port, _ in _listening(stack, started_below)}
    closed, reached, of_jobs = set(), set(), set()
    for port, (_, program, where, _) in before:
        answer = answers[str(port)]
        if program.startswith("ray::") and program not in AGENTS:
            of_jobs |= {answer} if port in after else set()  # it may have ended meanwhile
        else:
            (reached if where == "all" else closed).add((program, answer))
    assert {answer for _, answer in closed} == {""}, closed
    # With the first job the head's agent becomes a driver too.
    assert reached - {(AGENT, "token, but for channels")} == ANSWERS
    assert of_jobs <= {"token, but for channels"}


def test_the_stacks_keys_open_its_bucket_only(outputs, bucket):  # F36
    """Tests of bare stores show the other refusals (test_store_attacks.py)."""
    anonymous = stores.client_of(outputs, signature_version=UNSIGNED)
    for attempt in (
        partial(stores.client_of(outputs).list_objects_v2, Bucket="other"),
        partial(anonymous.list_objects_v2, Bucket=bucket),
    ):
        with pytest.raises(ClientError) as raised:
            attempt()
        # The store reports a missing bucket.
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] in (403, 404)


def test_prometheus_takes_no_orders(prometheus):  # F37
    request = urllib.request.Request(f"{prometheus}/-/quit", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=10)
    assert re.search("not enabled|disabled|Forbidden", raised.value.read().decode())


def _node(stack: Any, service: str, started_below: Any, name: str) -> psutil.Process:
    (found,) = [
        process
        for process in started_below(stack.folder)
        if process.name().startswith(name)
        and process.environ().get("SUPERVISOR_PROCESS_NAME") == service
    ]
    return found


@pytest.mark.parametrize(
    ("agent", "number"),
    [
        (False, signal.SIGKILL),
        (False, signal.SIGTERM),  # in order, which only `ray start` takes for intended
        (True, signal.SIGKILL),  # then the raylet ends in order
    ],
    ids=["crash", "in order", "agent"],
)
def test_a_node_that_ended_comes_back(  # F25
    agent, number, stack, outputs, started_below, wait_for
):
    before = _alive(outputs)
    assert len(before) == 2
    target = raylet = _node(stack, "ray-worker-0", started_below, "raylet")
    if agent:
        # It has overwritten its environment: it is found by its parent.
        (target,) = wait_for(lambda: [c for c in raylet.children() if c.name() == AGENT])
    target.send_signal(number)

    def back() -> bool:
        alive = _alive(outputs)
        return len(alive) == 2 and alive != before

    wait_for(back, 60)
    assert not raylet.is_running()


def test_a_node_that_hangs_is_given_up_in_time(stack, outputs, started_below, wait_for):  # F26
    """No process ended, so no report comes: the head asks, and the node ends once it goes on."""
    before = _alive(outputs)
    assert len(before) == 2
    raylet = _node(stack, "ray-worker-0", started_below, "raylet")
    raylet.suspend()
    try:
        # Five questions (Ray's default), a second apart and 3 s long (ray_cluster.py):
        # 20 s, and as much again for a busy machine.
        wait_for(lambda: len(_alive(outputs)) == 1, 40)
    finally:
        raylet.resume()
    wait_for(lambda: len(_alive(outputs) - before) == 1, 120)
    assert not raylet.is_running()


def test_a_head_that_was_killed_comes_back_and_takes_nothing_else_along(  # F27
    stack, outputs, started_below, wait_for
):
    jobs, token = f"{outputs['dashboardUrl']}/api/jobs/", outputs["rayToken"]
    job = status.ask(jobs, token, {"entrypoint": "sleep 3600"})["submission_id"]
    wait_for(lambda: status.ask(jobs + job, token)["status"] == "RUNNING", 120)
    others = [url for key in ("objectStoreEndpoint", "prometheusUrl") if (url := outputs[key])]
    head = _node(stack, "ray-head", started_below, "gcs_server").parent()
    assert head is not None
    head.kill()
    head.wait(10)

    def back() -> bool:
        for url in others:
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=10):
                pass  # any answer will do; URLError is none
        return len(_alive(outputs)) == 2

    wait_for(back, 150)
    # A head forgets its jobs; it must not call one RUNNING that does not run.
    left = {each["submission_id"]: each["status"] for each in status.ask(jobs, token)}
    assert left.get(job) in (None, "FAILED", "STOPPED")


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def test_of_two_at_the_same_moment_one_makes_nothing(declare_stack):  # F64
    with socket.create_server(("127.0.0.1", 0)) as held, ThreadPoolExecutor(2) as pool:
        # The first has its ports, and ends there all the same.
        ports = {"gcsPort": held.getsockname()[1], "servePort": free_ports(1)[0]}
        stacks = [declare_stack(**ports, objectStore="directory") for _ in range(2)]
        done = [*pool.map(lambda each: each.engine("up", "--yes", check=False), stacks)]
        said = [each.stdout + each.stderr for each in done]
        first, second = sorted((0, 1), key=lambda each: "is claimed by" in said[each])
        assert f"port {ports['gcsPort']} (gcsPort) is held by" in said[first]
        assert f"port {ports['servePort']} (servePort) is claimed by stack test of" in said[second]
        assert "train up --find-ports -s test`" in said[second]
        assert [stacks[each].data.exists() for each in (first, second)] == [True, False]
        for each in stacks:
            each.engine("destroy", "--yes")
