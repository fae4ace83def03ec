"""The whole way on two rented machines: key, launch, SSH, Ray, a job, loss of one, the end.

The cloud is the fake one; its instances are machines with their own cloud-init and sshd. The stack
comes up and ends under the pulumi CLI, by the commands of docs/poc.md: first with Ray's own
launcher, later with a Ray of the stack. The rest is the engine's.
"""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.job_submission import JobSubmissionClient

import trainyard.client.idle
from infra.machines.cloud_init import HOME
from infra.machines.environment import PYTHON
from node import idle_watch
from tests import own_project, pages, ran, status
from tests.fakes.lambda_cloud import FakeCloud
from tests.fakes.machines import Machines
from tests.integration.infra import hostile_job
from tests.integration.infra.hostile_job import METADATA
from tests.pages import Terminal, blocks_of
from tests.unit.trainyard import cifar10_files
from tests.waiting import wait_for
from trainyard.client import connection
from trainyard.client import outputs as contract

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
IDLE, LOGIN, SETUP, UP, LAUNCH, DASHBOARD, SUBMIT, SAVE, DOWN = pages.read_by(__file__)
(POC,) = [yaml.safe_load(each.text)["config"] for each in pages.blocks() if "poc" in each.file]
(FORWARD,) = DASHBOARD.of("ray")
SET, INFO, KEEP = IDLE.of("train")
TRAIN = str(Path(sys.executable).parent / "train")
RUN = r"alexnet-\d{8}-\d{6}-[0-9a-f]{4}"
TTL_FILE, TTL_LOG = "/etc/trainyard/ttl.json", "/var/log/trainyard-ttl.log"


@dataclass(frozen=True)
class Rented:
    stack: Any
    cloud: FakeCloud
    guests: Machines
    key_file: Path
    user: Terminal  # a reader of docs/poc.md

    def instances(self) -> list[Any]:
        """The living ones, the head's first."""
        found = [i for i in self.cloud.account.instances.values() if i.status == "active"]
        return sorted(found, key=lambda instance: instance.name)


@pytest.fixture(scope="module")
def launched(guests, declare, pulumi_cli) -> Iterator[Rented]:
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    key_file = base / "keys" / "test-ssh-010.pem"
    cloud_settings = POC["trainyard:lambdaCloud"]
    (candidate,) = cloud_settings["candidates"]
    with FakeCloud(machines=guests) as cloud:
        cloud.account.add_instance("of-somebody-else")
        stack = declare(
            base,
            copied=True,
            cli=pulumi_cli,
            stateDir="",
            dataDir="",
            workers=2,
            owner="teacher",
            sshKeyFile=str(key_file),
            allowedCidrs=["192.0.2.0/24"],
            startRay=POC["trainyard:startRay"],
            environmentFile="requirements.txt",
            lambdaCloud={
                **cloud_settings,
                "instances": 2,
                "candidates": [{"type": "gpu_1x_h100_pcie", "region": "us-west-3"}, candidate],
                "maxHourlyCost": 4,
            },
        )
        (stack.project / "requirements.txt").write_text("humanize==4.15.0\n")  # no node has it
        stack.environment.pop("SSH_AUTH_SOCK", None)
        # A machine of namespaces takes seconds to go, so time is not scaled as elsewhere.
        stack.environment.update(cloud.environment() | {"TRAINYARD_LAMBDA_PACE": "0.05"})
        stack.environment["LAMBDALABS_API_KEY"] = stack.environment.pop("LAMBDA_API_KEY")
        port = stack.settings["dashboardPort"]
        user = stack.terminal("poc")
        user.environment = pulumi_cli.environment(user.environment)
        user.instead = {**user.instead, "localhost:8265": f"localhost:{port}"}
        rented = Rented(stack, cloud, guests, key_file, user)
        try:
            user.run(SETUP)
            preview, up = [replace(UP, text=line) for line in UP.text.splitlines()]
            seen = user.run(preview)
            assert not cloud.journal.of("launch")
            assert "2 x gpu_1x_a10 in us-east-1: 1.50 $/h, 12.00 $ for the stack's 8 h" in seen
            stack.said.extend([seen, user.run(up)])
            yield rented
            # Even if nothing is left to terminate, because the machines have ended themselves.
            user.folder = stack.project
            left = user.run(replace(DOWN, text=f"{DOWN.text.strip()} YES=1 FORCE=1"))
            assert "the account holds nothing of stack test" in left  # A41 A43
            assert [i.name for i in rented.instances()] == ["of-somebody-else"]
            assert not cloud.account.ssh_keys
            assert not cloud.account.rulesets
            assert not key_file.exists()
            assert cloud.journal.problems == []
        finally:
            for identifier in list(cloud.account.instances):
                guests.destroy(identifier)
            shutil.rmtree(base, ignore_errors=True)


def test_key_instances_and_rules_are_as_declared(launched):
    account, mine = launched.cloud.account, launched.instances()[1:]
    assert [i.name for i in mine] == ["ray_head_node", "trainyard-test-teacher-1"]  # A12 to A14, D4
    assert {i.type for i in mine} == {"gpu_1x_a10"}
    for index, instance in enumerate(mine):
        assert instance.tags["trainyard:owner"] == "teacher"
        assert instance.tags["trainyard:stack"] == "test"
        assert instance.tags["trainyard:node"] == str(index)
    assert [key["name"] for key in account.ssh_keys.values()] == ["test-ssh-010"]  # A7, A9
    assert stat.S_IMODE(launched.key_file.stat().st_mode) == 0o600  # A10
    (rules,) = [ruleset["rules"] for ruleset in account.rulesets.values()]
    assert [(rule["source_network"], rule["port_range"]) for rule in rules] == [
        ("192.0.2.0/24", [22, 22])
    ]  # B2
    said = "".join(launched.stack.said)
    assert "Adding key name test-ssh-010" in said  # A8
    for instance in mine:  # A15
        asked = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10"}
        asked |= {"ssh_key_names": ["test-ssh-010"], "name": instance.name}
        for text in (
            f"Launching instance using key name test-ssh-010 and name {instance.name}",
            f"Launch instance with parameters {asked}",
            f"Launched instance {instance.name}: {instance.id}",
        ):
            assert text in said


@pytest.fixture
def cifar10(launched, tmp_path, monkeypatch) -> None:
    """A few images on each machine, as if it had downloaded CIFAR-10."""
    code = cifar10_files.write_for_others(tmp_path, monkeypatch)
    packages = f"{HOME}/.trainyard/trainyard-test/env/lib/python{PYTHON}/site-packages"
    data = f"{HOME}/.cache/trainyard/data"
    for instance in launched.instances()[1:]:
        launched.guests.exec(instance.id, f"mkdir -p {data}")
        shutil.copytree(tmp_path, launched.guests.path(instance.id, data), dirs_exist_ok=True)
        launched.guests.exec(instance.id, f"chown -R trainyard {HOME}/.cache/trainyard")
        for file, text in (("sums.py", code), ("sums.pth", "import sums; sums.begin()\n")):
            launched.guests.path(instance.id, f"{packages}/{file}").write_text(text)


@pytest.mark.usefixtures("cifar10")
def test_alexnet_is_trained_as_on_the_page(launched):  # A1, A22 to A30, A41
    stack, user = launched.stack, launched.user
    for instance in launched.instances()[1:]:  # F35: a job could become root here
        assert launched.guests.exec(instance.id, f"test -e {TTL_FILE}", check=False).returncode
    # Another cluster of this name may have been here.
    (up,) = LAUNCH.of("ray")
    said = user.run(replace(LAUNCH, text=LAUNCH.text.replace("up -y", "up --no-config-cache -y")))
    assert up == ["up", "-y", "ray_cluster_config.yaml"]
    for text in ("Acquiring an up-to-date head node", "Ray runtime started", "Next steps"):
        assert text in said
    port = stack.settings["dashboardPort"]
    forward = subprocess.Popen(
        [Path(sys.executable).parent / "ray", *FORWARD, f"--port={port}", f"--remote-port={port}"],
        cwd=stack.project,
        env=user.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        nodes = f"http://127.0.0.1:{port}/api/v0/nodes"
        token = stack.outputs()["rayToken"]
        # The launcher starts the second machine's some time after the head.
        wait_for(
            "both nodes",
            lambda: len(status.ask(nodes, token)["data"]["result"]["result"]) == 2,
            120,
        )
        said = re.sub(r"\x1b\[\d*m", "", user.run(SUBMIT))
    finally:
        os.killpg(forward.pid, signal.SIGTERM)
        forward.wait()
    for item in (  # A32 to A38
        rf"Job submission server address: http://localhost:{port}$",
        r"Uploading package gcs://_ray_pkg_\w+\.zip\.",
        r"Job 'raysubmit_\w+' submitted successfully$",
        r"\(RayTrainWorker pid=\d+.*\) \{'loss': \d\.\d+, 'epoch': 0\}",
        r"Epoch: 001/001 \| Train\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",
        r"Epoch: 001/001 \| Valid\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",
        r"^Total Training Time: \d+\.\d\d min$",
        r"^Train ACC: \d+\.\d\d%$",
        r"^Validation ACC: \d+\.\d\d%$",
        r"^Test ACC: \d+\.\d\d%$",
        r"^Training completed after 1 epochs",
        r"Job 'raysubmit_\w+' succeeded$",
    ):
        assert re.search(item, said, re.MULTILINE), f"{item}\n{said}"
    run = re.search(RUN, user.run(replace(SAVE, text="train runs -s poc")))
    assert run
    (written,) = re.findall(RUN, SAVE.text)
    user.instead = {**user.instead, written: run[0]}
    said = user.run(SAVE)
    assert "No nodes remaining" in said


@pytest.fixture(scope="module")
def lambda_stack(launched) -> Rented:
    """From here on the stack starts Ray, and its machines end themselves."""
    for instance in launched.instances()[1:]:  # as docs/hosts.md says
        launched.guests.exec(instance.id, f"rm -f {HOME}/ray_bootstrap_*; pkill raylet || true")
    launched.stack.change("startRay")
    launched.stack.engine(*SET)  # longer than a test takes
    launched.stack.pulumi("up", "--yes", "--skip-preview")
    return launched


def test_the_api_key_is_nowhere_but_where_root_reads_it(lambda_stack):  # F35
    key, stack = lambda_stack.cloud.api_key, lambda_stack.stack
    assert key not in "".join(stack.said)
    for path in (stack.project.parent / "backend").rglob("*"):
        assert not path.is_file() or key not in path.read_text()
    for instance in lambda_stack.instances()[1:]:
        assert key not in instance.user_data
        run = lambda_stack.guests.exec
        assert key in run(instance.id, f"cat {TTL_FILE}").stdout
        # Jobs run as this user: it is not an admin, and reads neither that nor the user data.
        for command in (
            f"cat {TTL_FILE}",
            "sudo -n true",
            "cat /var/lib/cloud/instance/user-data*",
        ):
            assert run(instance.id, command, user="trainyard", check=False).returncode != 0
        assert "docker" not in run(instance.id, "id trainyard").stdout


def test_a_second_up_and_a_refresh_change_nothing(lambda_stack):  # A2, A17, F20
    launches = len(lambda_stack.cloud.journal.of("launch"))
    theirs = lambda_stack.stack.resources()
    lambda_stack.stack.engine("up", "--yes", "--expect-no-changes")
    assert lambda_stack.stack.resources() == theirs
    lambda_stack.stack.pulumi("preview", "--expect-no-changes")
    lambda_stack.stack.pulumi("refresh", "--yes", "--expect-no-changes")
    lambda_stack.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    assert len(lambda_stack.cloud.journal.of("launch")) == launches


@pytest.mark.parametrize(("page", "blocks"), blocks_of("lambda").items())
def test_the_commands_of_a_page(page, blocks, lambda_stack):
    user = lambda_stack.stack.terminal("lambda")
    for block in blocks:
        user.run(block)


def test_a_user_logs_in_with_the_host_key_of_the_outputs(lambda_stack, tmp_path):
    user, known = lambda_stack.stack.terminal("lambda"), str(tmp_path / "known_hosts")
    theirs = {
        "~/.ssh/known_hosts": known,
        "~/.ssh/trainyard-lambda.pem": str(lambda_stack.key_file),
        "192.0.2.7": lambda_stack.stack.outputs()["ssh"]["host"],
        # SSH knows the home of this user, whatever HOME says.
        "ssh -i": f"ssh -o UserKnownHostsFile={known} -o StrictHostKeyChecking=yes -i",
    }
    replace(user, instead={**user.instead, **theirs}).run(LOGIN)


def submit(rented: Rented, script: Path, *arguments: str, options: tuple[str, ...] = ()) -> str:
    path = rented.stack.write_outputs(script.parent)
    options = ("--name", script.stem, "--outputs", str(path), *options, "--")
    command = [TRAIN, "submit", str(script), *options, *arguments]
    return ran.output(command, env=rented.stack.environment, timeout=300)


def test_a_readers_own_project_trains_there(lambda_stack, tmp_path):  # C5 C6
    file = lambda_stack.stack.write_outputs(tmp_path)
    own_project.train(tmp_path, file, lambda_stack.stack.environment)


@pytest.fixture
def metadata(lambda_stack) -> Iterator[None]:
    """A metadata service that the head's machine reaches."""
    head, run, address = lambda_stack.instances()[1], lambda_stack.guests.exec, METADATA[0]
    serve = f"setsid python3 -m http.server --bind {address} 80 -d /usr/share >/dev/null 2>&1"
    for command in (
        "ip netns add cloud",
        "ip link add cloud type veth peer name eth0 netns cloud",
        "ip address add 169.254.169.253/30 dev cloud",
        "ip link set cloud up",
        f"ip -n cloud address add {address}/30 dev eth0",
        "ip -n cloud link set eth0 up",
        f"nsenter --net=/run/netns/cloud {serve} & echo $! > /run/cloud.pid",
    ):
        run(head.id, command)
    ask = f"curl --silent --fail --max-time 2 http://{address}/"
    wait_for("metadata", lambda: run(head.id, ask, check=False).returncode == 0, 20)
    yield
    run(head.id, "kill $(cat /run/cloud.pid); ip netns delete cloud")


@pytest.mark.usefixtures("metadata")
def test_a_hostile_job_has_what_the_services_user_has(lambda_stack, tmp_path):  # F44
    stack, head = lambda_stack.stack, lambda_stack.instances()[1]
    paths = "/var/tmp/trainyard-*/versitygw/files/root-password"
    found = lambda_stack.guests.exec(head.id, f"ls {paths}; cat {paths}").stdout
    secrets = hostile_job.of_this_machine(stack, tmp_path)
    path, secrets["root"] = found.split()
    secrets["the stack's key"] = hostile_job.longest_word(lambda_stack.key_file.read_text())
    secrets["the account's key"] = lambda_stack.cloud.api_key
    host_key = yaml.safe_load(head.user_data)["ssh_keys"]["ed25519_private"]
    secrets["the host key"] = hostile_job.longest_word(host_key)
    folders = ("/etc", "/home/ubuntu", "/root", "/run/cloud-init", "/var/lib/cloud", "/var/tmp")
    asked = hostile_job.arguments(secrets, folders=folders, metadata=True)
    script, on_head = hostile_job.script(tmp_path)
    said = submit(lambda_stack, Path(script), asked, options=(on_head,))
    assert hostile_job.report(said) == {"secrets": {"root": [path]}, "rights": []}


def test_a_vanished_instance_is_made_again_and_nothing_else(lambda_stack, tmp_path, settled):  # F8
    stack, (_, head, worker) = lambda_stack.stack, lambda_stack.instances()
    lambda_stack.cloud.account.disappear(worker.id)
    lambda_stack.guests.destroy(worker.id)
    seen = stack.engine("refresh", "--yes").stdout
    assert "lambda-instance-1" in seen
    stack.engine("up", "--yes")
    _, same, other = lambda_stack.instances()
    assert same.id == head.id
    assert other.id != worker.id
    assert len(lambda_stack.cloud.journal.of("launch")) == 3
    stack.engine("up", "--yes", "--expect-no-changes")
    outputs = contract.read(None, stack.write_outputs(tmp_path))
    with connection.to(outputs) as tunnel:
        settled(tunnel.outputs, 3)


def _train(rented: Rented, outputs_file: Path, *arguments: str) -> str:
    command = [TRAIN, *arguments, "--outputs", str(outputs_file)]
    done = ran.run(command, env=rented.stack.environment, timeout=120)
    return done.stdout + done.stderr


def test_an_idle_cluster_is_known_and_its_end_is_put_off(lambda_stack, tmp_path):
    path = lambda_stack.stack.write_outputs(tmp_path)
    outputs = contract.read(None, path)
    with connection.to(outputs) as tunnel:

        def idle() -> str:
            return trainyard.client.idle.summary(tunnel.outputs)

        headers = {"Authorization": f"Bearer {outputs.ray_token}"}
        jobs = JobSubmissionClient(tunnel.outputs.dashboard_url, headers=headers)
        job = jobs.submit_job(entrypoint="sleep 300")
        wait_for("activity", lambda: f"active: job {job} is RUNNING" in idle())
        jobs.stop_job(job)
        # The runs of these tests have written neither records nor checkpoints.
        wait_for("idleness", lambda: "min: idle since" in idle())
    assert "; kept until 20" in _train(lambda_stack, path, *KEEP)
    assert "must be more than 0 and at most" in _train(lambda_stack, path, "keep", "9h")
    info = _train(lambda_stack, path, *INFO)
    assert re.search(r"ends when idle.* in \d{3} min: idle since .*; kept until 20", info), info


def _timer(rented: Rented, instance: Any, *, network: bool) -> None:
    """Run the timer of a machine; in its own network, or in this one's, where the cloud is."""
    init = str(rented.guests.path(instance.id, TTL_FILE)).split("/")[2]
    own = ["--net"] if network else []
    done = ran.run(
        ["nsenter", f"--target={init}", "--mount", *own, "/usr/local/sbin/trainyard-ttl"]
    )
    assert done.returncode == 0 or network, done.stdout + done.stderr


def test_a_machine_whose_time_is_over_ends_itself(lambda_stack):
    worker = lambda_stack.instances()[2]
    run, host = lambda_stack.guests.exec, lambda_stack.guests
    known = run(worker.id, f"cat {TTL_FILE}").stdout
    settings = json.loads(known)
    assert settings["instanceId"] == worker.id
    eight_hours = time.time() + 8 * 3600
    end = datetime.fromisoformat(settings["end"]).timestamp()
    assert eight_hours - 1800 < end <= eight_hours
    assert "trainyard-ttl" in run(worker.id, "cat /etc/cron.d/trainyard-ttl").stdout
    path = host.path(worker.id, TTL_FILE)
    soon = datetime.now(UTC) + timedelta(minutes=4)
    path.write_text(json.dumps(settings | {"end": soon.isoformat()}))
    run(worker.id, "/usr/local/sbin/trainyard-ttl")
    assert "ends in 4 minutes" in run(worker.id, f"cat {TTL_LOG}").stdout
    path.write_text(json.dumps(settings | {"end": "1970-01-01T00:00:00+00:00"}))
    # The cloud is on the loopback of this machine: from there the request arrives, see below.
    _timer(lambda_stack, worker, network=True)
    assert "this machine cannot be terminated" in run(worker.id, f"cat {TTL_LOG}").stdout
    path.write_text(known)


def _watch(rented: Rented, head: Any) -> tuple[str, Path, dict[str, Any]]:
    """The idle watch's process, its settings' file, and the content of that."""
    found = rented.guests.exec(head.id, "pgrep -u trainyard -af idle_watch.py", check=False).stdout
    pid, *_, file = found.split() or ("", "")
    if not pid:
        raise OSError("it does not run")
    path = rented.guests.path(head.id, file)
    return pid, path, json.loads(path.read_text())


def _watch_anew(rented: Rented, head: Any, *, idle_seconds: float, state: dict[str, float]) -> None:
    """Restart it, with other settings and another past."""
    pid, file, settings = _watch(rented, head)
    file.write_text(json.dumps(settings | {"idleSeconds": idle_seconds}))
    rented.guests.path(head.id, settings["file"]).write_text(json.dumps(state))
    rented.guests.exec(head.id, f"kill -KILL {pid}")
    wait_for("another watch", lambda: _watch(rented, head)[0] != pid)


def test_machines_end_once_the_cluster_was_idle_for_long_the_heads_last(lambda_stack):
    _, head, worker = lambda_stack.instances()

    def ended(instance: Any) -> bool:
        """Whether the machine has learned in its own network that it is to end; then it does."""
        _timer(lambda_stack, instance, network=True)
        run = lambda_stack.guests.exec
        if run(instance.id, "test -e /run/trainyard-ttl-ending", check=False).returncode:
            return False
        _timer(lambda_stack, instance, network=False)
        return True

    assert not ended(worker)
    _watch_anew(lambda_stack, head, idle_seconds=1, state={"keep_until": 0, "ending": 0})
    wait_for("the worker's verdict", lambda: ended(worker))
    wait_for("the worker's end", lambda: worker not in lambda_stack.instances(), 60)
    assert not ended(head)
    past = {"keep_until": 0, "ending": time.time() - idle_watch.HEAD_SECONDS}
    _watch_anew(lambda_stack, head, idle_seconds=1, state=past)
    wait_for("the head's verdict", lambda: ended(head))
    wait_for("the head's end", lambda: head not in lambda_stack.instances(), 60)
