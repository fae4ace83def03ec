"""The lab as containers: what runs, what it may do, what it survives, what is left of it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

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
RUN = ["--epochs", "6", "--max-images", "240", "--batch-size", "32", "--cpus-per-worker", "1"]


@pytest.fixture(scope="module")
def outputs(lab: Any) -> dict[str, Any]:
    result: dict[str, Any] = lab.stack.outputs()
    return result


def _get(url: str, token: str = "") -> Any:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _alive(outputs: dict[str, Any]) -> set[str]:
    """IDs of the nodes that Ray says are alive."""
    try:
        found = _get(f"{outputs['dashboardUrl']}/api/v0/nodes", outputs["rayToken"])
    except OSError:
        return set()
    nodes = found["data"]["result"]["result"]
    return {node["node_id"] for node in nodes if node["state"] == "ALIVE"}


def _train(lab: Any, outputs: dict[str, Any], tmp_path: Path, *arguments: str) -> Any:
    file = tmp_path / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(outputs))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    return subprocess.Popen(
        [sys.executable, "-m", "training", *arguments],
        cwd=ROOT,
        env={**kept, "TRAINYARD_OUTPUTS": str(file), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def test_all_services_are_up(lab: Any, outputs: dict[str, Any]) -> None:  # D11 D14 D23
    assert set(lab.containers()) == SERVICES
    assert {each.status for each in lab.containers().values()} == {"running"}
    assert len(_alive(outputs)) == 3
    assert [node["name"] for node in outputs["nodes"]] == [
        "ray-head",
        "ray-worker-0",
        "ray-worker-1",
    ]


def test_a_second_up_changes_nothing(lab: Any) -> None:
    lab.stack.engine("up", "--yes", "--expect-no-changes")
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    lab.stack.engine("up", "--yes", "--expect-no-changes")


def test_the_nodes_run_what_the_outputs_say(lab: Any, outputs: dict[str, Any]) -> None:
    script = "import sys, ray; print('%d.%d' % sys.version_info[:2], ray.__version__)"
    code, said = lab.container("ray-worker-0").exec_run(["python", "-c", script])
    assert code == 0
    assert said.decode().split() == [outputs["pythonVersion"], outputs["rayVersion"]]


def test_no_container_may_do_more_than_it_needs(lab: Any) -> None:  # F40
    for service, container in lab.containers().items():
        host = container.attrs["HostConfig"]
        assert host["Privileged"] is False, service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["CapAdd"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert host["NetworkMode"] != "host", service
        assert host["RestartPolicy"]["Name"] == "unless-stopped", service
        assert host["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}, service
        assert not [m for m in container.attrs["Mounts"] if "docker.sock" in str(m)], service
        code, said = container.exec_run(["id", "-u"])
        assert code == 0, service
        assert int(said) != 0, service
        assert container.labels["trainyard.stack"] == "test", service


def test_shared_memory_follows_from_the_nodes_memory(lab: Any, outputs: dict[str, Any]) -> None:
    node = next(node for node in outputs["nodes"] if node["name"] == "ray-worker-0")
    size = lab.container("ray-worker-0").attrs["HostConfig"]["ShmSize"]
    assert size // 2**20 == node["objectStoreMib"] + node["memoryMib"] // 4


def _listening() -> set[tuple[str, int]]:
    return {
        (connection.laddr.ip, connection.laddr.port)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    }


def test_what_listens_is_what_is_published_and_on_loopback(lab: Any) -> None:  # F33
    mine = {lab.stack.settings[key] for key in PUBLISHED}
    bound = {
        (binding["HostIp"], int(binding["HostPort"]))
        for container in lab.containers().values()
        for bindings in (container.attrs["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }
    assert bound == {("127.0.0.1", port) for port in mine}
    assert {pair for pair in _listening() if pair[1] in mine} == bound
    others = {port for key, port in lab.stack.settings.items() if key.endswith("Port")} - mine
    assert not [pair for pair in _listening() if pair[1] in others]


def test_no_secret_lies_about(lab: Any, outputs: dict[str, Any], tmp_path: Path) -> None:  # F35
    secrets = {outputs["rayToken"], outputs["secretKey"]}
    secrets.add(outputs["notebookUrl"].rpartition("token=")[2])
    places = {"said": "".join(lab.stack.said)}
    for service, container in lab.containers().items():
        places[f"inspect {service}"] = json.dumps(container.attrs)
        places[f"log {service}"] = container.logs().decode(errors="replace")
        history = container.image.history()
        places[f"history {service}"] = json.dumps(history)
    for process in psutil.process_iter():
        try:
            places[f"command line {process.pid}"] = " ".join(process.cmdline())
        except psutil.Error:
            continue
    backend = Path(lab.stack.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
    for path in backend.rglob("*"):
        if path.is_file():
            places[path.name] = path.read_text(errors="replace")
    for place, text in places.items():
        for secret in secrets:
            assert secret not in text, place


def test_the_notebook_reaches_the_cluster(lab: Any, outputs: dict[str, Any]) -> None:  # D14 D22
    container = lab.container("jupyter")
    script = (
        "from ray.job_submission import JobSubmissionClient as C; c = C(); "
        "print(c.get_version(), [j.submission_id for j in c.list_jobs()])"
    )
    code, said = container.exec_run(["python3", "-c", script])
    assert code == 0, said.decode()
    code, said = container.exec_run(["printenv", "RAY_API_SERVER_ADDRESS"])
    port = lab.stack.settings["dashboardPort"]
    assert said.decode().strip() == f"http://ray-head:{port}"
    address, _, token = outputs["notebookUrl"].partition("/lab?token=")  # D21
    assert _get(f"{address}/api/status?token={token}")["started"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(f"{address}/api/status")
    assert refused.value.code == 403


def test_prometheus_sees_every_node_and_the_store(  # D12
    lab: Any, outputs: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    def healthy() -> bool:
        found = _get(f"{outputs['prometheusUrl']}/api/v1/targets")["data"]["activeTargets"]
        up = [target["labels"]["job"] for target in found if target["health"] == "up"]
        return up.count("object-store") == 1 and up.count("ray") >= 3 and len(up) == len(found)

    wait_for(healthy, 90)


def test_rays_dashboards_reach_grafana(lab: Any, outputs: dict[str, Any]) -> None:  # D12
    listed = json.dumps(_get(f"{outputs['grafanaUrl']}/files"))
    assert "default_grafana_dashboard.json" in listed
    assert "trainyard.json" in listed


@pytest.mark.parametrize(
    ("service", "change"),
    [("prometheus", "stop"), ("ray-worker-1", "remove"), ("prometheus", "disconnect")],
)
def test_what_is_changed_by_hand_is_seen_and_mended(
    lab: Any, outputs: dict[str, Any], service: str, change: str, wait_for: Callable[..., Any]
) -> None:
    container = lab.container(service)
    if change == "stop":
        container.stop(timeout=1)
    elif change == "remove":
        container.remove(force=True)
    else:
        lab.client.networks.get(lab.identity).disconnect(container)
    seen = lab.stack.engine("refresh", "--yes", "--expect-no-changes", check=False)
    assert seen.returncode != 0, seen.stdout
    lab.stack.engine("up", "--yes")
    assert lab.container(service).status == "running"
    assert lab.identity in lab.container(service).attrs["NetworkSettings"]["Networks"]
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
    wait_for(lambda: len(_alive(outputs)) == 3, 90)


def test_a_job_ends_on_the_other_worker_from_its_checkpoint(  # D47 D48 D49 D50 D13
    lab: Any, outputs: dict[str, Any], tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    process = _train(lab, outputs, tmp_path, "submit", "alexnet", "--name", "moved", "--", *RUN)
    lines: list[str] = []
    try:
        addresses = {
            lab.container(name).attrs["NetworkSettings"]["Networks"][lab.identity][
                "IPAddress"
            ]: name
            for name in ("ray-worker-0", "ray-worker-1")
        }
        stopped = ""
        for line in process.stdout:
            lines.append(line)
            if not stopped and line.startswith("(RayTrainWorker") and "'epoch': 2" in line:
                stopped = addresses[re.search(r"ip=([\d.]+)", line)[1]]
                lab.container(stopped).stop()
        assert process.wait(30) == 0, "".join(lines)
        text = "".join(lines)
        assert stopped, text
        restored = re.search(r"Restored from checkpoint \S*moved\S*: (\d) epochs are done", text)
        assert restored, text
        assert int(restored[1]) >= 2  # at most one checkpoint interval is lost
        assert "Training completed after 6 epochs: s3://ray/moved" in text
        wait_for(lambda: len(_alive(outputs)) == 2, 30)
        lab.container(stopped).start()
        wait_for(lambda: len(_alive(outputs)) == 3, 90)
    finally:
        process.kill()
        process.wait()
        for name in ("ray-worker-0", "ray-worker-1"):
            lab.container(name).start()


def test_a_node_whose_raylet_ended_in_order_comes_back(  # F25
    lab: Any, outputs: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    before = _alive(outputs)
    assert len(before) == 3
    ended = lab.container("ray-worker-1").exec_run(["sh", "-c", "kill $(pidof raylet)"])
    assert ended.exit_code == 0, ended.output
    wait_for(lambda: len(alive := _alive(outputs)) == 3 and alive != before, 90)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")


def test_the_cluster_comes_back_after_its_head_was_killed(  # F27
    lab: Any, outputs: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    before = _alive(outputs)
    os.kill(lab.container("ray-head").attrs["State"]["Pid"], signal.SIGKILL)
    wait_for(lambda: len(_alive(outputs) - before) == 3, 180)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")


def test_everything_comes_back_after_the_engine_was_restarted(  # F31
    lab: Any, outputs: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    restart = os.environ.get("TRAINYARD_RESTART_DOCKER")
    if not restart:
        pytest.skip("TRAINYARD_RESTART_DOCKER names no command that restarts the Docker Engine")
    before = _alive(outputs)
    subprocess.run(restart, shell=True, check=True, timeout=120)
    wait_for(lambda: len(_alive(outputs) - before) == 3, 180)
    wait_for(lambda: {c.status for c in lab.containers().values()} == {"running"}, 60)
    lab.stack.engine("refresh", "--yes", "--expect-no-changes")
