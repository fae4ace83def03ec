"""The lab as containers: its services, their rights, the faults it survives, its leftovers."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from docker.errors import APIError

from cluster import grafana
from cluster.notebook import WORKSPACE
from infra.service.images import VOLUMES
from infra.settings import container_limits
from tests import browser, cells, pages, status
from tests.integration.infra import drained, hostile_job
from tests.integration.infra.docker import hunt
from tests.listening import kernel_chooses, listeners
from trainyard.client import outputs as contract
from trainyard.client import store
from trainyard.client.job_server import JobServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[4]
SERVICES = {
    "grafana",
    "jupyter",
    "minio",
    "prometheus",
    "ray-head",
    "ray-worker-0",
    "ray-worker-1",
}
PUBLISHED = {
    "dashboardPort",
    "objectStorePort",
    "objectStoreConsolePort",
    "prometheusPort",
    "grafanaPort",
    "notebookPort",
    "servePort",
}
WORKERS = ("ray-worker-0", "ray-worker-1")
OF_PAGE = tuple(f"${{PREFIX}}{worker}" for worker in WORKERS)
ENVIRONMENT, TRAIN, TOLERANT, STOP, START = pages.read_by(__file__)
EPOCHS = 4
# Options that make the course's jobs short, on nodes without a GPU.
SMALL = ("--weights", "none", "--image-side", "32", "--loader-processes", "0")
SMALL += ("--gpus-per-worker", "0", "--cpus-per-worker", "1", "--total-epochs", str(EPOCHS))


@pytest.fixture(scope="module")
def outputs(lab) -> dict[str, Any]:
    result: dict[str, Any] = lab.stack.outputs()
    return result


def _alive(outputs: dict[str, Any]) -> set[str]:
    """IDs of the nodes that Ray says are alive."""
    try:
        found = status.ask(f"{outputs['dashboardUrl']}/api/v0/nodes", outputs["rayToken"])
    except OSError:
        return set()
    nodes = found["data"]["result"]["result"]
    return {node["node_id"] for node in nodes if node["state"] == "ALIVE"}


def _nodes_alive(outputs: dict[str, Any]) -> int:
    """What Grafana's panel "Nodes alive" of this stack asks Prometheus, and its answer."""
    files = status.ask(f"{outputs['grafanaUrl']}/files")
    (board,) = [json.loads(files[path]) for path in files if path.endswith("/trainyard.json")]
    (panel,) = [each for each in board["panels"] if each["title"] == "Nodes alive"]
    query = urllib.parse.urlencode({"query": panel["targets"][0]["expr"]})
    answer = status.ask(f"{outputs['prometheusUrl']}/api/v1/query?{query}")
    return sum(int(each["value"][1]) for each in answer["data"]["result"])


def _train(lab: Any, outputs: dict[str, Any], tmp_path: Path, *arguments: str) -> Any:
    file = tmp_path / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(outputs))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    return subprocess.Popen(
        [sys.executable, "-m", "trainyard.client", *arguments],
        cwd=ROOT,
        env={**kept, "TRAINYARD_OUTPUTS": str(file), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def test_all_services_are_up(lab, outputs):  # D4 D11 D14 D23
    states = {service: container.status for service, container in lab.containers().items()}
    assert states == dict.fromkeys(SERVICES, "running") | {"dataset": "exited"}
    assert len(_alive(outputs)) == 3
    assert [node["name"] for node in outputs["nodes"]] == [
        "ray-head",
        "ray-worker-0",
        "ray-worker-1",
    ]


def test_a_second_up_changes_nothing(lab):
    # The CLI's state lacks the containers' defaults, which only Docker's own plugin records.
    lab.stack.engine("up", "--yes", "--expect-no-changes")
    once = lab.stack.resources()
    lab.stack.engine("up", "--yes", "--expect-no-changes")
    assert lab.stack.resources() == once
    lab.stack.pulumi("preview", "--expect-no-changes")
    lab.stack.pulumi("refresh", "--yes", "--expect-no-changes")
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")


def test_a_lab_that_is_up_keeps_its_names(lab):  # D4
    owner, volumes = lab.stack.settings["owner"], lab.volumes()
    lab.change(owner="ann")
    up = lab.stack.engine("up", "--yes", check=False)
    assert up.returncode == 1
    for said in (up.stdout + up.stderr, lab.stack.pulumi("preview", check=False)):
        text = " ".join(said.split())
        assert f"network and volumes are named {lab.identity}, and the settings" in text
        assert "now name them ann-trainyard-test. Nothing was changed" in text
    lab.change(owner=owner)
    assert lab.volumes() == volumes
    lab.stack.engine("up", "--yes", "--expect-no-changes")


def test_the_nodes_run_what_the_outputs_say(lab, outputs):
    script = "import sys, ray; print('%d.%d' % sys.version_info[:2], ray.__version__)"
    code, said = lab.container("ray-worker-0").exec_run(["python", "-c", script])
    assert code == 0
    assert said.decode().split() == [outputs["pythonVersion"], outputs["rayVersion"]]


def _limit(lab: Any, service: str) -> container_limits.Limit:
    given = lab.stack.settings.get("containerLimits", {})
    return container_limits.of(
        service,
        {
            name: container_limits.ContainerLimits.model_validate(each)
            for name, each in given.items()
        },
    )


def test_no_container_may_do_more_than_it_needs(lab, outputs):  # F40
    nodes = {node["name"]: node for node in outputs["nodes"]}
    for service, container in lab.containers().items():
        host, once = container.attrs["HostConfig"], service == "dataset"
        assert host["Privileged"] is False, service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["CapAdd"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert host["NetworkMode"] != "host", service
        assert host["RestartPolicy"]["Name"] == ("no" if once else "unless-stopped"), service
        assert host["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}, service
        assert not [m for m in container.attrs["Mounts"] if "docker.sock" in str(m)], service
        if not once:
            code, said = container.exec_run(["id", "-u"])
            assert code == 0, service
            assert int(said) != 0, service
        assert container.labels["trainyard.stack"] == "test", service
        limit = _limit(lab, service)
        memory = limit.memory_mib
        if node := nodes.get(service):
            memory = int(node["memoryMib"] + node["objectStoreMib"] + 2048 + 128 * node["cpus"])
            memory += 8192 if service == "ray-head" else 0
        assert host["Memory"] == host["MemorySwap"] == memory * 2**20, service
        assert host["PidsLimit"] == limit.processes, service


def test_the_kernel_keeps_the_bounds(lab, wait_for):
    container, limit = lab.container("grafana"), _limit(lab, "grafana")
    files = "cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
    found = container.exec_run(["sh", "-c", f"({files}) 2>/dev/null"]).output
    assert int(found) == limit.memory_mib * 2**20
    # More processes than it may have, by a shell that has this command.
    forks = f"for i in $(seq {limit.processes + 50}); do sleep 5 >/dev/null 2>&1 & done"
    said = container.exec_run(["sh", "-c", forks]).output.decode()
    assert re.search("fork|Resource temporarily unavailable", said), said

    def has_room() -> bool:
        try:
            return bool(container.exec_run(["true"]).exit_code == 0)
        except APIError:
            return False

    wait_for(has_room, 60)
    container.reload()
    assert container.status == "running"


KERNEL = 0  # a port that the kernel chose
DNS = ("", "127.0.0.11", KERNEL)  # Docker's own name server, in every container
# All listeners on TCP, as program, address, and the port's setting. Each new one has to be checked:
# who reaches it, and what protects it (docs/security.md).
ANY = "0.0.0.0"
NODE = {  # of every Ray node
    ("raylet", ANY, KERNEL),  # two of them
    ("ray::DashboardA", ANY, KERNEL),  # gRPC, and metrics
    ("ray::RuntimeEnv", "own", KERNEL),
}
LISTENERS: dict[str, set[tuple[str, str, str | int]]] = {
    "grafana": {("python3", ANY, "grafanaPort")},  # the stand-in
    "jupyter": {("jupyter-lab", ANY, "notebookPort")},
    "minio": {
        ("minio", "::", "objectStorePort"),
        ("minio", "127.0.0.1", "objectStorePort"),
        ("minio", ANY, "objectStoreConsolePort"),
    },
    "prometheus": {("prometheus", "::", "prometheusPort")},
    "ray-head": {
        *NODE,
        ("gcs_server", ANY, "gcsPort"),
        ("python3", ANY, "dashboardPort"),
        ("python3", ANY, "autoscalerMetricsPort"),
        ("python3", ANY, "dashboardMetricsPort"),
        ("python3", "127.0.0.1", "rayClientPort"),
        ("python3", "own", "rayClientPort"),
        ("ray::DashboardA", "127.0.0.1", "agentPort"),
        ("ray::DashboardA", "own", "agentPort"),
    },
    **{
        f"ray-worker-{index}": {
            *NODE,
            ("ray::DashboardA", "127.0.0.1", f"agentPort + {index + 1}"),
            ("ray::DashboardA", "own", f"agentPort + {index + 1}"),
        }
        for index in (0, 1)
    },
}
# Other processes of Ray are of jobs: they come and go, and the kernel chooses their ports.
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")


def _seen(lab: Any, service: str) -> set[tuple[str, str, str | int]]:
    """The listeners in a container: ports as settings, or KERNEL."""
    container = lab.container(service)
    ids = [int(process[0]) for process in container.top(ps_args="-eo pid")["Processes"]]
    own = container.attrs["NetworkSettings"]["Networks"][lab.identity]["IPAddress"]
    settings = {port: key for key, port in lab.stack.settings.items() if key.endswith("Port")}
    settings |= {lab.stack.settings["agentPort"] + i: f"agentPort + {i}" for i in (1, 2)}
    found: set[tuple[str, str, str | int]] = set()
    for program, address, port in listeners(ids):
        name: str | int = settings.get(port, KERNEL if kernel_chooses(port) else port)
        of_a_job = program.startswith("ray::") and program not in AGENTS and name == KERNEL
        if not of_a_job:
            found.add((program, "own" if address == own else address, name))
    return found


def test_what_listens_is_what_is_known_to_listen(lab):  # F33
    found = {service: _seen(lab, service) for service in SERVICES}
    assert found == {service: {*known, DNS} for service, known in LISTENERS.items()}


def test_what_listens_on_this_machine_is_published_on_loopback(lab):  # F33
    published = {("127.0.0.1", lab.stack.settings[key]) for key in PUBLISHED}
    bound = {
        (binding["HostIp"], int(binding["HostPort"]))
        for container in lab.containers().values()
        for bindings in (container.attrs["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }
    assert bound == published
    # All ports on which Docker listens for these containers.
    own = {
        container.attrs["NetworkSettings"]["Networks"][lab.identity]["IPAddress"]
        for container in lab.containers().values()
    }
    forwarders = [
        process.pid
        for process in psutil.process_iter()
        if process.name() == "docker-proxy" and own & set(process.cmdline())
    ]
    listening = listeners([os.getpid(), *forwarders])
    found = {(each.address, each.port) for each in listening if each.program == "docker-proxy"}
    assert found == published
    fixed = {port for key, port in lab.stack.settings.items() if key.endswith("Port")}
    assert {(each.address, each.port) for each in listening if each.port in fixed} == published


def test_no_secret_lies_about(lab, outputs):  # F35
    assert hunt.finds_of(lab, outputs) == []


def test_a_hostile_job_has_what_its_stacks_jobs_have(lab, outputs, tmp_path):  # F44
    root = lab.container("minio").exec_run(["cat", hunt.ROOT_PASSWORD]).output.decode().strip()
    secrets = hostile_job.of_this_machine(lab.stack, tmp_path) | {"root": root}
    secrets["Grafana's password"] = outputs["grafanaPassword"]
    secrets["Jupyter's token"] = outputs["notebookUrl"].rpartition("token=")[2]
    # A secret that it must find, as proof that it searches: its own way to the store.
    secrets["training"] = outputs["secretKey"]
    asked = hostile_job.arguments(secrets)
    job = _train(lab, outputs, tmp_path, "submit", *hostile_job.script(tmp_path), "--", asked)
    said, _ = job.communicate(timeout=120)
    assert job.returncode == 0, said
    got = hostile_job.report(said)
    assert got == {"secrets": {"training": ["/etc/trainyard/aws-credentials"]}, "rights": []}


def test_the_notebook_reaches_the_cluster(lab, outputs):  # D14 D22
    container = lab.container("jupyter")
    script = (
        "from ray.job_submission import JobSubmissionClient as C; c = C(); "
        "print(c.get_version(), [j.submission_id for j in c.list_jobs()])"
    )
    code, said = container.exec_run(["python3", "-c", script])
    assert code == 0, said.decode()
    (command,) = ENVIRONMENT.commands
    said = container.exec_run(command).output
    here = f"http://ray-head:{lab.stack.settings['dashboardPort']}"
    assert {f"RAY_ADDRESS={here}", f"RAY_API_SERVER_ADDRESS={here}"} <= {*said.decode().split()}
    code, said = container.exec_run(["train", "list", "-s", "test"])
    assert code == 0, said.decode()
    address, _, token = outputs["notebookUrl"].partition("/lab?token=")  # D21
    assert status.ask(f"{address}/api/status?token={token}")["started"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        status.ask(f"{address}/api/status")
    assert refused.value.code == 403
    begin = "import trainyard; trainyard.run('cells')"
    cells.run(address, token, begin, "trainyard.log(acc=0.5, step=1)")
    (shown,) = cells.run(address, token, "!train show cells")
    assert "SUCCEEDED" in shown


def test_prometheus_sees_every_node_and_the_store(lab, outputs, wait_for):  # D12
    def healthy() -> bool:
        found = status.ask(f"{outputs['prometheusUrl']}/api/v1/targets")["data"]["activeTargets"]
        up = [target["labels"]["job"] for target in found if target["health"] == "up"]
        return up.count("object-store") == 1 and up.count("ray") >= 3 and len(up) == len(found)

    wait_for(healthy, 90)


def test_rays_dashboards_reach_grafana_and_are_framed(lab, outputs):  # D12 D24
    files = status.ask(f"{outputs['grafanaUrl']}/files")
    listed = {Path(path).name: text for path, text in files.items()}
    assert {"default_grafana_dashboard.json", "trainyard.json"} <= listed.keys()
    written = [json.loads(listed[each]) for each in listed if each.endswith("_dashboard.json")]
    told = status.ask(f"{outputs['dashboardUrl']}/api/grafana_health", outputs["rayToken"])["data"]
    assert told["grafanaHost"] == outputs["grafanaUrl"]
    assert told["dashboardDatasource"] == grafana.DATASOURCE
    assert set(told["dashboardUids"].values()) == {each["uid"] for each in written}


@pytest.mark.skipif(browser.PROGRAM is None, reason="chromium is not on PATH")
def test_rays_own_overview_frames_panels_that_show_the_cluster(lab, outputs):  # D12
    with browser.page() as page:
        page.go(outputs["dashboardUrl"])
        page.wait("document.body")
        bearer = json.dumps({"Authorization": f"Bearer {outputs['rayToken']}"})
        page.wait(
            f"fetch('/api/authenticate', {{method: 'POST', headers: {bearer}}}).then(a => a.ok)"
        )
        page.go(f"{outputs['dashboardUrl']}/?#/overview")
        framed = "[...document.querySelectorAll('iframe')].map(each => [each.title, each.src])"
        page.wait(f"{framed}.length == 2")
        shown = {}
        for title, address in page.value(framed):
            assert address.startswith(outputs["grafanaUrl"])
            page.go(address)
            page.wait_text(title)
            shown[title] = page.value("document.body.innerText")
    nodes = re.findall(r"^Active Nodes: .* = (\d+)$", shown["Node Count"], re.MULTILINE)
    assert sum(map(int, nodes)) == 3, shown
    assert re.search(r"^CPU.* = [\d.]+$", shown["Cluster Utilization"], re.MULTILINE), shown


@pytest.mark.parametrize(
    ("service", "change"),
    [("prometheus", "stop"), ("ray-worker-1", "remove"), ("prometheus", "disconnect")],
)
def test_what_is_changed_by_hand_is_seen_and_mended(lab, outputs, service, change, wait_for):
    container = lab.container(service)
    if change == "stop":
        container.stop(timeout=1)
    elif change == "remove":
        container.remove(force=True)
    else:
        lab.client.networks.get(lab.identity).disconnect(container)
        subprocess.run(
            [
                "docker",
                "update",
                "--pids-limit=-1",
                "--memory=3g",
                "--memory-swap=3g",
                container.id,
            ],
            check=True,
            capture_output=True,
        )
    seen = lab.stack.engine("refresh", "--yes", "--expect-no-changes", check=False)
    assert seen.returncode != 0, seen.stdout
    lab.stack.engine("up", "--yes")
    assert lab.container(service).status == "running"
    assert lab.identity in lab.container(service).attrs["NetworkSettings"]["Networks"]
    host, limit = lab.container(service).attrs["HostConfig"], _limit(lab, service)
    assert host["PidsLimit"] == limit.processes
    assert not limit.memory_mib or host["Memory"] == limit.memory_mib * 2**20
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    wait_for(lambda: len(_alive(outputs)) == 3, 90)


def _of_the_notebook(lab: Any, block: pages.Block, *options: str) -> subprocess.Popen[str]:
    """Starts the last command of a block in the notebook's terminal, with more options."""
    # Where no terminal is, Python keeps lines back.
    terminal = ("docker", "exec", "--env", "PYTHONUNBUFFERED=1")
    terminal += ("--workdir", f"{VOLUMES}/{WORKSPACE.name}/train")
    return subprocess.Popen(
        [*terminal, lab.container("jupyter").name, *block.commands[-1], *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def _on_the_machine(lab: Any, block: pages.Block, worker: str) -> None:
    """Runs a block of `docker` commands on this lab's container of a worker."""
    for command in block.commands:
        words = [lab.prefix + worker if word in OF_PAGE else word for word in command]
        subprocess.run(words, check=True, capture_output=True, timeout=60)


def _metrics(outputs: contract.StackOutputs, run: str) -> list[dict[str, Any]]:
    """Records of a run in the bucket, without their times."""
    (name,) = {key for key in store.open_store(outputs).folders() if key.startswith(run)}
    lines = (store.open_store(outputs).get(f"{name}/metrics.jsonl") or b"").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "minutes"} for line in lines]


def test_the_courses_job_goes_on_at_the_other_worker_from_its_checkpoint(  # D13 D30 D47 to D50
    lab, outputs, tmp_path, wait_for
):
    file = tmp_path / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(outputs))
    known = contract.read(None, file)
    undisturbed = _of_the_notebook(lab, TRAIN, *SMALL)
    process = None
    networks = {
        name: lab.container(name).attrs["NetworkSettings"]["Networks"][lab.identity]
        for name in WORKERS
    }
    services = {network["IPAddress"]: name for name, network in networks.items()}
    lines: list[str] = []
    try:
        whole, _ = undisturbed.communicate(timeout=200)
        assert undisturbed.returncode == 0, whole
        process = _of_the_notebook(lab, TOLERANT, *SMALL)
        stopped = ""
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if not stopped and "Epoch: 002/" in line:
                stopped = re.search(r"ip=([\d.]+)", line)[1]
                _on_the_machine(lab, STOP, services[stopped])
                wait_for(lambda: len(_alive(outputs)) == 2, 60)
                # D49. On a busy machine Prometheus misses agents that answer too late.
                wait_for(lambda: _nodes_alive(outputs) == 2, 180)
        text = "".join(lines)
        assert process.wait(30) == 0, text
        assert stopped, text
        # The second, where the node's notice came in time.
        lost = rf"Worker 0 on {stopped} has failed; restart 1 of 2, from the last checkpoint\."
        lost += "|Worker 0 ended with its node, as it had notice; the run goes on from the last"
        assert len(re.findall(lost, text)) == 1, text
        found = re.findall(r"Restored on ([\d.]+) from checkpoint: s3://ray/\S+/check", text)
        assert found == [address for address in services if address != stopped], text
        # It read the volume, and ends with the figures of the undisturbed run.
        accuracy = r"Test ACC: \d+\.\d\d% \| generated data"
        assert len(re.findall(accuracy, whole)) == 1, whole
        assert re.findall(accuracy, text) == re.findall(accuracy, whole)
        records = _metrics(known, "food11-train-fault-tolerant-")
        assert [record["epoch"] for record in records] == list(range(EPOCHS))
        assert records == _metrics(known, "food11-train-ray-")
        _on_the_machine(lab, START, services[stopped])
        wait_for(lambda: len(_alive(outputs)) == _nodes_alive(outputs) == 3, 90)
    finally:
        for each in filter(None, (undisturbed, process)):
            each.kill()
            each.wait()
        for name in WORKERS:
            lab.container(name).start()


def test_an_up_drains_workers_one_after_another_and_refuses_a_head_with_jobs(
    lab, outputs, tmp_path, wait_for
):
    steps = "/tmp/steps"
    options = ("--name", "drained", "--no-wait", "--working-dir", str(ROOT))
    submit = ("submit", drained.__file__, *options, "--", "--steps", steps)
    submitted = _train(lab, outputs, tmp_path, *submit)
    said, _ = submitted.communicate(timeout=120)
    assert submitted.returncode == 0, said
    known = contract.read(None, tmp_path / "outputs.json")
    place, server = store.open_store(known), JobServer(known)
    wait_for(lambda: (place.get("drained/metrics.jsonl") or b"").count(b"\n") == 1, 120)
    (job,) = [each.submission_id for each in server.jobs() if each.run == "drained"]
    lab.change(head={"cpus": 1})
    refused = lab.stack.engine("up", "--yes", check=False)
    named = f"its jobs would be lost: {job} (drained). Wait for their end"
    assert named in refused.stdout + refused.stderr
    del lab.stack.settings["head"]
    lab.change(worker={"cpus": 1, "resources": {"new": 1}})
    up = lab.stack.engine("up", "--yes").stderr
    asked = re.findall(
        rf"^(ray-worker-\d) is drained, for at most 60 s: {job} \(drained\)$", up, re.MULTILINE
    )
    assert asked == list(WORKERS)
    for name in ("ray-head", *WORKERS):
        lab.container(name).exec_run(["touch", f"{steps}.go"])  # no more slow steps
    wait_for(lambda: server.job(job).status.ended, 120)
    log = "".join(server.log_pieces(job))
    history = [json.loads(line) for line in place.get("drained/metrics.jsonl").splitlines()]
    # Each step was taken once, although two nodes ended in the middle of epochs.
    every = drained.parser.get_default("epochs") * drained.STEPS
    assert history[-1]["loss"] == sum(range(every)), log
    assert [record["batches"] for record in history] == [drained.STEPS] * len(history)


def test_a_node_whose_raylet_ended_in_order_comes_back(lab, outputs, wait_for):  # F25
    before = _alive(outputs)
    assert len(before) == 3
    ended = lab.container("ray-worker-1").exec_run(["sh", "-c", "kill $(pidof raylet)"])
    assert ended.exit_code == 0, ended.output
    wait_for(lambda: len(alive := _alive(outputs)) == 3 and alive != before, 90)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")


def test_containers_end_with_their_reservation_and_run_again_when_it_is_extended(  # D3
    lab, outputs, wait_for
):
    def reserve(seconds: float) -> str:
        now = datetime.now(UTC)
        end = now + timedelta(seconds=seconds)
        times = {"start": f"{now:%Y-%m-%dT%H:%MZ}", "end": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
        lab.change(reservation=times, drainSeconds=5)
        lab.stack.engine("up", "--yes")
        return f"reservation-ends-{end:%Y-%m-%d-%H%M}-UTC.txt"

    def notices() -> list[str]:
        listed = lab.container("jupyter").exec_run(["ls", "/var/lib/trainyard/workspace"])[1]
        return [name for name in listed.decode().split() if name.startswith("reservation-")]

    before = _alive(outputs)
    for seconds in (7200, 60):
        named = reserve(seconds)
        wait_for(lambda named=named: notices() == [named], 30)
    assert _alive(outputs) == before, "a reservation restarts nothing"
    wait_for(lambda: {each.status for each in lab.containers().values()} == {"exited"}, 150)
    late = lab.stack.engine("up", "--yes", check=False)
    assert "set reservation.end to the new end" in late.stdout + late.stderr
    assert late.returncode == 1
    reserve(7200)
    states = {name: each.status for name, each in lab.containers().items()}
    assert states == dict.fromkeys(SERVICES, "running") | {"dataset": "exited"}
    wait_for(lambda: len(_alive(outputs) - before) == 3, 120)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    lab.stack.change("reservation", "drainSeconds")
    lab.stack.engine("up", "--yes")


def test_everything_comes_back_after_the_engine_was_restarted(lab, outputs, wait_for):  # F31
    restart = os.environ.get("TRAINYARD_RESTART_DOCKER")
    if not restart:
        pytest.skip("TRAINYARD_RESTART_DOCKER names no command that restarts the Docker Engine")
    before = _alive(outputs)
    subprocess.run(restart, shell=True, check=True, timeout=120)
    wait_for(lambda: len(_alive(outputs) - before) == 3, 180)
    wait_for(lambda: {lab.container(name).status for name in SERVICES} == {"running"}, 60)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")


def test_shared_memory_follows_from_the_nodes_memory(lab, outputs):
    node = next(node for node in outputs["nodes"] if node["name"] == "ray-worker-0")
    size = lab.container("ray-worker-0").attrs["HostConfig"]["ShmSize"]
    assert size // 2**20 == node["objectStoreMib"] + node["memoryMib"] // 4
