"""A whole stack on two existing machines: up, a job, drift, destroy.

It comes up and ends under the pulumi CLI; the rest is the engine's.
"""

import json
import shlex
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from ray.job_submission import JobSubmissionClient

from tests import pages, ran
from tests.fakes.machines import Machines
from tests.integration.infra import hostile_job
from tests.integration.training import tiny
from tests.pages import blocks_of
from trainyard.client import connection
from trainyard.client import outputs as contract
from trainyard.client.job_server import JobServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
(ENDED,) = pages.read_by(__file__)
(JOB,) = ENDED.of("train")
HOSTS = ("stack-a", "stack-b")
GROUPS: dict[str, dict[str, Any]] = {
    "cpu": {"cpus": 1},
    # Woken when a job waits for it, and parked when it is idle.
    "tpu": {"cpus": 1, "resources": {"TPU": 4}, "idleMinutes": 0.1},
}
ROOT = Path(__file__).resolve().parents[4]
TRAIN = str(Path(sys.executable).with_name("train"))
FOLDERS = "ls -d /var/tmp/trainyard-* ~ubuntu/.trainyard ~ubuntu/*.tar.gz 2>/dev/null || true"
PROGRAMS = (
    "supervisord|raylet|gcs_server|versitygw|prometheus|alertmanager|replicate.py|node_switch.py"
    "|trainyard_queue.py"
)
SERVICES = f"pgrep -u ubuntu -fa '{PROGRAMS}' || true"
COPY = "/var/tmp/copy"
# Needs the parked host; says so once it runs there.
TPU_JOB = """
import ray, time
ray.init()
@ray.remote(num_cpus=0, resources={"TPU": 4})
def there(): return "woken"
print(ray.get(there.remote()), flush=True)
@ray.remote(num_cpus=0, resources={"TPU": 4})
def stay(): time.sleep(%d)
ray.get(stay.remote())
"""
HELD_SECONDS = 600  # longer than the test takes


@pytest.fixture(scope="module")
def on_hosts(guests, boot_host, declare_on_hosts, pulumi_cli) -> Iterator[Any]:
    stack = declare_on_hosts(
        [boot_host(name) | {"group": group} for name, group in zip(HOSTS, GROUPS, strict=True)],
        nodeGroups=[{"name": name, **fields} for name, fields in GROUPS.items()],
        keepData=False,
        copied=True,
        cli=pulumi_cli,
        replicate={"to": COPY},
        alertWebhookUrl="http://192.0.2.1/nobody",
        page=True,
        queue=True,
    )
    try:
        stack.pulumi("up", "--yes", "--skip-preview")
        yield stack
        user = stack.terminal("hosts")
        user.environment = pulumi_cli.environment(user.environment)
        (down,) = ENDED.of("make")
        user.run(replace(ENDED, text=shlex.join(["make", *down])))
        for name in HOSTS:  # F20, A41
            assert guests.exec(name, FOLDERS).stdout == ""
            assert guests.exec(name, SERVICES).stdout == ""
    finally:
        for name in HOSTS:
            guests.destroy(name)


@pytest.fixture
def outputs_file(on_hosts, tmp_path) -> Path:
    file: Path = on_hosts.write_outputs(tmp_path)
    return file


def test_a_second_up_and_a_refresh_change_nothing(on_hosts):  # F20
    theirs = on_hosts.resources()
    assert " same (" in on_hosts.engine("up", "--yes", "--expect-no-changes").stdout
    assert on_hosts.resources() == theirs
    on_hosts.pulumi("preview", "--expect-no-changes")
    on_hosts.pulumi("refresh", "--yes", "--expect-no-changes")
    on_hosts.engine("up", "--yes", "--refresh", "--expect-no-changes")


def test_the_read_only_page_runs_there_too(on_hosts, outputs_file):  # F37
    outputs = contract.read(None, outputs_file)
    viewer = ("viewer", on_hosts.outputs()["pagePassword"])
    with connection.to(outputs) as tunnel:
        (url,) = [each.url for each in tunnel.outputs.services if each.output == "pageUrl"]
        codes = [requests.get(url, auth=each, timeout=60).status_code for each in (None, viewer)]
    assert codes == [401, 200]


@pytest.mark.parametrize(("page", "blocks"), blocks_of("hosts").items())
def test_the_commands_of_a_page(page, blocks, on_hosts):
    user = on_hosts.terminal("hosts")
    for block in blocks:
        user.run(block)


def _submit(outputs: contract.StackOutputs, seconds: int) -> tuple[JobSubmissionClient, str]:
    headers = {"Authorization": f"Bearer {outputs.ray_token}"}
    client = JobSubmissionClient(outputs.dashboard_url, headers=headers)
    entrypoint = f"python -c {shlex.quote(TPU_JOB % seconds)}"
    return client, client.submit_job(entrypoint=entrypoint)


def _raylets(guests: Machines, name: str) -> list[str]:
    return guests.exec(name, "pgrep -u ubuntu raylet", check=False).stdout.split()


def test_a_parked_host_is_woken_for_a_job_and_parked_again(  # B1
    on_hosts, outputs_file, settled, guests, wait_for
):
    outputs = contract.read(None, outputs_file)
    with connection.to(outputs) as tunnel:
        settled(tunnel.outputs, 2)
        assert _raylets(guests, HOSTS[1]) == []
        client, job = _submit(tunnel.outputs, HELD_SECONDS)
        nodes = settled(tunnel.outputs, 3)
        addresses = {host["privateAddress"] for host in on_hosts.settings["hosts"]}
        assert {node["node_ip"] for node in nodes} == addresses
        groups = {node["labels"]["group"]: node for node in nodes if "group" in node["labels"]}
        assert groups.keys() == GROUPS.keys()  # B24
        assert groups["tpu"]["resources_total"]["TPU"] == 4
        assert "TPU" not in groups["cpu"]["resources_total"]
        raylets = _raylets(guests, HOSTS[1])
        guests.exec(HOSTS[1], "pkill -KILL -u ubuntu -f node_switch.py")
        # The supervisor starts it again; the report tells the truth until then.
        wait_for(lambda: _drift(on_hosts) == (0, {}))
        assert _raylets(guests, HOSTS[1]) == raylets  # F2
        client.stop_job(job)
        settled(tunnel.outputs, 2)
    wait_for(lambda: _raylets(guests, HOSTS[1]) == [], 30)


def test_a_job_uses_both_machines_from_here(on_hosts, outputs_file, guests):  # A21, C1, C5
    submit, _, *arguments = JOB  # with a job that takes less time
    command = [TRAIN, submit, tiny.__file__, "--name", "both", "--outputs", str(outputs_file)]
    # The whole tree, whose library the script imports.
    command += ["--working-dir", str(ROOT), *arguments, "--max-failures", "0"]
    said = ran.output(command, env=on_hosts.environment, timeout=300)
    assert "Training completed after 1 epochs" in said
    for name in HOSTS:
        logs = "/var/tmp/trainyard-*/ray-worker-*/ray/session_latest/logs/worker-*.out"
        assert guests.exec(name, f"grep -l actor_name:RayTrainWorker {logs}").stdout, name


def test_a_hostile_job_has_what_the_login_has(on_hosts, outputs_file, guests, tmp_path):  # F44
    paths = "/var/tmp/trainyard-*/versitygw/files/root-password"
    secrets = hostile_job.of_this_machine(on_hosts, tmp_path)
    path, secrets["root"] = guests.exec(HOSTS[0], f"ls {paths}; cat {paths}").stdout.split()
    key = Path(on_hosts.settings["sshKeyFile"]).read_text()
    secrets["the stack's key"] = hostile_job.longest_word(key)
    folders = ("/etc", "/root", "/var/lib/cloud", "/var/tmp")
    asked = hostile_job.arguments(secrets, folders=folders)
    submit = (TRAIN, "submit", *hostile_job.script(tmp_path), "--outputs", str(outputs_file))
    said = ran.output((*submit, "--", asked), env=on_hosts.environment, timeout=120)
    got = hostile_job.report(said)
    # The store's root keys are files of the same user, who is an admin of these machines.
    assert got == {"secrets": {"root": [path]}, "rights": ["sudo"]}


def test_only_what_others_need_is_open_to_them(on_hosts, guests):  # F33
    ports = on_hosts.settings
    head = on_hosts.settings["hosts"][0]
    for port, address, answers in (
        (ports["objectStorePort"], head["privateAddress"], True),
        (ports["dashboardPort"], head["privateAddress"], False),
        (ports["dashboardPort"], head["address"], False),
        (ports["prometheusPort"], head["privateAddress"], False),
    ):
        command = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port}'"
        done = guests.exec("stack-b", command, check=False)
        assert (done.returncode == 0) == answers, (address, port)


def test_the_first_machine_has_alertmanager_and_a_second_copy_of_results(
    on_hosts, guests, wait_for
):
    alertmanager = f"http://127.0.0.1:{on_hosts.settings['alertmanagerPort']}"
    guests.exec(HOSTS[0], f"curl -sf {alertmanager}/-/ready")
    wait_for(lambda: "both/metrics.jsonl" in guests.exec(HOSTS[0], f"find {COPY}").stdout, 60)
    found = guests.exec(HOSTS[0], f"find {COPY}/both -name manifest.json").stdout.split()
    assert found
    assert guests.exec(HOSTS[1], f"ls {COPY}", check=False).returncode != 0


def _drift(stack: Any) -> tuple[int, dict[tuple[str, str], str]]:
    """The exit code of the report, and its findings, by layer and name."""
    done = stack.drift("--json")
    report = json.loads(done.stdout)
    assert report["failures"] == []
    return done.returncode, {(f["layer"], f["name"]): f["found"] for f in report["findings"]}


def test_a_host_that_lost_its_services_gets_them_again(on_hosts, guests):
    # As after a reboot: only the stack's processes on that machine are gone.
    assert _drift(on_hosts) == (0, {})
    guests.exec("stack-b", "pkill -KILL -u ubuntu; true", check=False)
    code, found = _drift(on_hosts)
    assert code == 2
    assert "does not answer: it was killed" in found["services", "hosts-ray-worker-1"]  # F63
    assert ("services", "hosts-ray-worker-0") not in found
    drift = on_hosts.engine("refresh", "--yes").stdout
    assert "host-1-supervisor" in drift
    assert "host-0-supervisor" not in drift.replace("same", "")
    again = on_hosts.engine("up", "--yes").stdout
    assert "3 update" in again, again
    on_hosts.engine("up", "--yes", "--expect-no-changes")


def test_a_host_that_does_not_answer_is_named_and_nothing_is_forgotten(
    on_hosts, outputs_file, guests, wait_for
):
    address = on_hosts.settings["hosts"][1]["address"]
    outputs = contract.read(None, outputs_file)
    guests.cut("stack-b")
    try:
        with connection.to(outputs) as tunnel:
            job = _submit(tunnel.outputs, 0)[1]
        said = on_hosts.pulumi("refresh", "--yes", check=False)
        assert f"ubuntu@{address} cannot be reached by SSH" in said
        assert "Traceback" not in said
        code, found = _drift(on_hosts)
        assert code == 2
        assert "cannot be reached by SSH" in found["hosts", f"ubuntu@{address}"]
        assert not [name for layer, name in found if layer == "services"]
    finally:
        guests.heal("stack-b")
    wait_for(lambda: answers(address))
    # The autoscaler went on without the host, and wakes it now.
    with connection.to(outputs) as tunnel:
        server = JobServer(tunnel.outputs)
        wait_for(lambda: server.job(job).status.ended, 90)
        assert "woken" in "".join(server.log_pieces(job))
    on_hosts.engine("up", "--yes", "--expect-no-changes")


def answers(address: str) -> bool:
    try:
        socket.create_connection((address, 22), timeout=1).close()
    except OSError:
        return False
    return True
