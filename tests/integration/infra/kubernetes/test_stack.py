"""A stack on Kubernetes: real pods, real Ray, and KubeRay's own operator."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from cluster import kuberay
from tests import own_project, pages
from tests.integration.infra import hostile_job
from tests.integration.infra.kubernetes.conftest import (
    GPU_GROUP,
    GROUP,
    GROUP_OF_FILES,
    Lab,
    give_to_pods,
    made,
    start_train,
    train,
)
from tests.pages import blocks_of
from trainyard.access.kubectl import Cluster, forwarded
from trainyard.access.outputs import SERVE_URL

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

GROW_SECONDS = 300  # a pod waits for the head with a fifth of a processor
EPOCHS = 2
RESERVED_SECONDS = 100  # an `up` that only restarts the notebook and Prometheus takes 40
*USED, ENDED = blocks_of("kubernetes")["docs/kubernetes.md"]  # its last block is `make down`
TUTORIAL = blocks_of("kubernetes")["docs/kuberay.md"]
FIRST, SECOND = pages.read_by(__file__)
# Each page's answer to a user without a password: the dashboard's page asks for a token itself, and
# the stand-in for Grafana has a page for its health alone.
ANSWERS = {
    "Grafana": 404,
    "MLflow": 401,
    "Prometheus": 302,
    "Ray dashboard": 200,
    "notebook": 302,
    "object store": 403,
}
# A job's view of the data set, and the owner of new files of the shared volume.
SEEN = """\
import json, os
from pathlib import Path
images = list(Path(os.environ["FOOD11_DATA_DIR"]).glob("*/*/*.jpg"))
groups = {image.stat().st_gid for image in images}
print(json.dumps([len(images) > 100, sorted(groups), os.getuid() != 0]))
"""
# A task that Ray has no node for.
ASKS = """\
import ray
ray.get(ray.remote(num_gpus=1)(lambda: None).remote())  # of a class, remote() makes an actor
"""


@pytest.fixture(scope="module")
def lab(kubernetes, make_lab, tmp_path_factory, pulumi_cli) -> Iterator[Lab]:
    """A stack with all possible parts; the pulumi CLI brings it up."""
    shared = tmp_path_factory.mktemp("shared")
    with made(kubernetes) as namespace:
        lab = make_lab(
            namespace,
            copied=True,
            cli=pulumi_cli,
            kubernetes={"shared": {"hostPath": str(shared)}},
            dataset={"generate": True},
            grafana=True,
            notebook=True,
            tracking="mlflow",
        )
        give_to_pods(shared)
        lab.stack.pulumi("up", "--yes", "--skip-preview")
        yield lab


@pytest.fixture(scope="module")
def outputs(lab, tmp_path_factory) -> Path:
    found: Path = lab.stack.write_outputs(tmp_path_factory.mktemp("outputs"))
    return found


def _results(lab: Lab, outputs: Path) -> list[dict[str, Any]]:
    """All runs with their results; Ray's list of jobs ends with its head."""
    runs: list[dict[str, Any]] = json.loads(train(lab, outputs, "runs", "--json"))
    return [{key: value for key, value in run.items() if key != "job"} for run in runs]


def _try_another_head(lab: Lab) -> str:
    """The output of an `up` that would recreate all pods of Ray; then the settings are restored."""
    lab.stack.change(head={"cpus": 1})
    try:
        done = lab.stack.engine("up", "--yes", check=False)
    finally:
        lab.stack.change("head")
    return str(done.stdout + done.stderr)


def _is_ready(pod: dict[str, Any]) -> bool:
    ready = {"type": "Ready", "status": "True"}
    return any(ready.items() <= each.items() for each in pod["status"].get("conditions", ()))


def _gpu_pods(lab: Lab) -> list[dict[str, Any]]:
    """Pods of the group with GPUs."""
    of_group = f"--selector=ray.io/group={GPU_GROUP['name']}"
    found: list[dict[str, Any]] = lab.get("pods", of_group)["items"]
    return found


@pytest.mark.pulumi
def test_the_engine_and_the_cli_take_over_and_change_nothing(lab):
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    lab.stack.pulumi("preview", "--expect-no-changes", "--diff")
    lab.stack.pulumi("refresh", "--yes", "--expect-no-changes")
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")


def test_the_operator_says_what_a_stack_relies_on(lab):
    (cluster,) = lab.get("raycluster")["items"]
    name, status = cluster["metadata"]["name"], cluster["status"]
    assert status["state"] == "ready"
    assert status["head"]["serviceName"] == kuberay.head_service(name)
    assert [status["head"]["podName"]] == [*lab.pods("head")]
    told = {each["type"]: each["status"] for each in status["conditions"]}
    assert told == {
        "HeadPodReady": "True",
        "RayClusterProvisioned": "True",
        "RayClusterSuspended": "False",
        "RayClusterSuspending": "False",
    }
    # It writes no count of zero, but amounts: no workers exist yet.
    assert not {"readyWorkerReplicas", "desiredWorkerReplicas"} & status.keys()
    assert (status["desiredGPU"], status["desiredTPU"]) == ("0", "0")
    assert {"endpoints", "stateTransitionTimes"} <= status.keys()


def test_info_names_the_heads_pod(lab, outputs):  # E4
    (head,) = lab.pods("head")
    assert re.search(rf"head's pod\W+{head}\b", train(lab, outputs, "info"))


def test_all_pods_of_ray_have_the_data_set_and_its_group(lab):  # E5
    (head,) = lab.pods("head")
    seen = ("exec", head, "--container=ray-head", "--", "python3", "-c", SEEN)
    assert json.loads(lab.kubectl(*seen)) == [True, [GROUP_OF_FILES], True]


def test_every_page_is_reached_by_kubectl(lab, outputs, monkeypatch):
    monkeypatch.setenv("PATH", f"{lab.node.programs}:{os.environ['PATH']}")
    known = json.loads(outputs.read_text())
    place = known["kubernetes"]
    statuses = {}
    for service in known["services"]:
        url = urlsplit(known[service["url"]])
        if not url.port or service["url"] == SERVE_URL:  # nothing is served yet
            continue
        with forwarded(Cluster.of(place), place["services"][str(url.port)], url.port) as here:
            asked = requests.get(f"http://{here}/", allow_redirects=False, timeout=30)
        statuses[service["title"]] = asked.status_code
    assert statuses == ANSWERS


def test_a_job_starts_workers_survives_one_that_is_killed_and_they_go(  # E6, E9, E10
    lab, outputs, wait_for
):
    assert lab.pods("worker") == {}
    arguments = ("--data", "digits", "--epochs", str(EPOCHS), "--batch-size", "32")
    job = start_train(lab, outputs, *FIRST.of("train")[0], "--", *arguments)
    said, killed, at_once, refused = [], "", 0, ""
    try:
        for line in job.stdout:
            said.append(line)
            if "epoch" in line and "loss" in line and not killed:
                workers = [*lab.pods("worker")]
                at_once, killed = len(workers), workers[0]
                lab.kubectl("delete", "pod", killed, "--grace-period=0", "--force")
                refused = _try_another_head(lab)
    finally:
        job.kill()
    assert "these jobs would be lost: " in refused
    assert job.wait() == 0, "".join(said)[-4000:]
    assert (at_once, bool(killed)) == (GROUP["max"], True)
    wait_for(lambda: lab.pods("worker") == {}, GROW_SECONDS)


def test_a_readers_own_project_trains_there(lab, outputs, tmp_path):  # C5 C6
    path = f"{lab.node.programs}:{os.environ['PATH']}"  # kubectl's
    own_project.train(tmp_path, outputs, {**lab.stack.environment, "PATH": path})


def test_a_hostile_job_has_what_its_stacks_jobs_have(lab, outputs, tmp_path):  # F44
    known = json.loads(outputs.read_text())
    store = ("exec", "statefulset/test-versitygw", "--", "cat", "/etc/trainyard/root-password")
    secrets = hostile_job.of_this_machine(lab.stack, tmp_path)
    secrets["root"] = lab.kubectl(*store).strip()
    secrets["Grafana's password"] = known["grafanaPassword"]
    # A secret that it must find, as proof that it searches: its own way to the store.
    secrets["training"] = known["secretKey"]
    asked = hostile_job.arguments(secrets)
    said = train(lab, outputs, "submit", *hostile_job.script(tmp_path), "--", asked)
    got = hostile_job.report(said)
    (path,) = got["secrets"].pop("training")
    assert Path(path).name == "aws-credentials"
    assert got == {"secrets": {}, "rights": []}


def test_the_commands_of_the_pages(lab, outputs):  # E1, E2, E3
    user = lab.stack.terminal("kube")
    # The GPUs of this stack are a group's that no node takes.
    user.instead = {**user.instead, "--epochs 1": "--epochs 1 --cpu"}
    for block in (*USED, *TUTORIAL):
        user.run(block)
    values = yaml.safe_load((user.folder / "values.yaml").read_text())
    assert values["fullnameOverride"] == "test-ray"
    said = train(lab, outputs, *SECOND.of("train")[0])  # E11, E12
    assert re.findall(r"'epoch': (\d)", said) == ["0", "1"]
    assert '"throughput_MB_s": ' in said


def test_what_was_changed_by_hand_is_seen_and_set_right_and_waited_for(lab):
    (deleted,) = lab.pods("head")
    everybody = {"spec": {"ingress": [{}]}}
    lab.kubectl("patch", "networkpolicy", "test", "--patch", json.dumps(everybody))
    lab.kubectl("delete", "service", "test-prometheus")
    found = lab.stack.drift("--json")
    assert found.returncode == 2, found.stdout + found.stderr
    named = {each["name"] for each in json.loads(found.stdout)["findings"]}
    assert {"kubernetes-network", "kubernetes-prometheus-service"} <= named
    # Its pods stay for seconds: the operator makes no head while it finds one, even a dying one.
    lab.kubectl("delete", "raycluster", "--all")
    lab.stack.engine("up", "--yes")
    ((name, head),) = lab.pods("head").items()
    assert name != deleted
    assert _is_ready(head)
    assert lab.get("networkpolicy", "test")["spec"]["ingress"] != everybody["spec"]["ingress"]
    again = lab.stack.drift()
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_change_that_makes_no_pod_anew_is_there_at_once(lab):
    (before,) = lab.pods("head").values()
    tolerated = {"key": "nvidia.com/gpu", "operator": "Exists"}
    lab.stack.change(nodeGroups=[GROUP, {**GPU_GROUP, "tolerations": [tolerated]}])
    lab.stack.engine("up", "--yes")
    lab.stack.engine("preview", "--refresh", "--expect-no-changes")
    (after,) = lab.pods("head").values()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_job_that_counts_on_a_pod_that_no_node_takes_goes_on(lab, outputs, wait_for, tmp_path):
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    train(lab, outputs, "submit", str(script), "--no-wait", "--name", "asks")
    wait_for(lambda: _gpu_pods(lab), GROW_SECONDS)
    train(lab, outputs, "stop", "asks")
    # Its pod has room for one task, so Ray starts no other one for it before it gives the pod up.
    assert "1 tasks" in train(lab, outputs, "submit", "cpu_example", "--", "1")


def test_a_reservation_ends_all_pods_and_a_later_one_brings_them_back(lab, outputs, wait_for):  # D3
    runs = _results(lab, outputs)
    (before,) = lab.pods("head")
    now = datetime.now(UTC)
    reserved = {"start": f"{now:%Y-%m-%dT%H:%MZ}"}
    ends = now + timedelta(seconds=RESERVED_SECONDS)
    lab.stack.change(reservation={**reserved, "end": f"{ends:%Y-%m-%dT%H:%M:%SZ}"})
    lab.stack.engine("up", "--yes")
    assert [*lab.pods("head")] == [before]
    notice = f"reservation-ends-{ends:%Y-%m-%d-%H%M}-UTC.txt"
    folder = "/var/lib/trainyard/workspace"
    assert notice in lab.kubectl("exec", "statefulset/test-jupyter", "--", "ls", folder)
    # A killed timer is started again.
    lab.kubectl("delete", "pod", "--selector=trainyard/service=reservation-end", "--wait=false")
    said = ""

    def are_gone() -> bool:
        nonlocal said
        said = lab.kubectl("logs", "deployment/test-reservation-end", check=False) or said
        chosen = ("--selector=trainyard/stack", "--field-selector=status.phase!=Succeeded")
        return not lab.get("pods", *chosen)["items"]

    wait_for(are_gone, RESERVED_SECONDS + 60)
    assert datetime.now(UTC) >= ends
    assert "runs store a checkpoint and leave" in said
    assert "could not be drained" not in said
    late = lab.stack.engine("up", "--yes", check=False)
    assert late.returncode
    assert "reservation.end" in late.stdout + late.stderr
    lab.stack.change(reservation={**reserved, "end": "2126-01-01T00:00Z"})
    lab.stack.engine("up", "--yes")
    assert all(map(_is_ready, lab.pods("head").values()))
    assert _results(lab, outputs) == runs  # claims stay
    lab.stack.engine("preview", "--refresh", "--expect-no-changes")


def test_destroy_leaves_claims_with_results_and_nothing_else(lab):
    user = lab.stack.terminal("kube")
    # Results were not pulled. For `make` this is like text typed after the command.
    user.environment = user.environment | {"FORCE": "1"}
    user.run(ENDED)
    every = "all,configmap,secret,pvc,networkpolicy,pdb,raycluster,role,rolebinding,serviceaccount"
    left = lab.kubectl("get", every, "--selector=trainyard/stack", "--output=name")
    assert left == ""
    assert lab.pods() == {}
    claims = lab.get("pvc", "--selector=trainyard/kept-of=test")["items"]
    assert any("versitygw" in claim["metadata"]["name"] for claim in claims)
