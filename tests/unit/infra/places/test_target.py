"""The whole program under mocks, on machines that are there already and on rented ones."""

import json
import os
import socket
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import rpc

from engine.values import mask, reveal
from infra.machines import cloud_init, docker_engine, probe
from infra.machines.probe import Facts
from infra.places.containers.container_deadline import DeadlineArgs
from tests import host_facts, pages, ran
from tests.outputs import names_of_outputs
from trainyard.access import docker_client

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"
ONE = {"address": "192.0.2.4", "user": "ada", "hostKey": KEY, "privateAddress": "10.0.0.4"}
TWO = {"address": "gpu2.lab", "user": "bob", "hostKey": KEY, "privateAddress": "10.0.0.5"}
THREE = {"address": "gpu3.lab", "user": "bob", "hostKey": KEY, "privateAddress": "10.0.0.6"}
PRIVATE = "canary of the private key"
HOST_KEY = "canary of the host key"
(BOUNDS,) = pages.read_by(__file__)
RESERVED = {"start": "2026-01-01T00:00Z", "end": "2126-01-01T15:55Z"}
FACTS = replace(
    host_facts.FACTS,
    cpus=16,
    memory_mib=65536,
    programs={"prometheus": "/usr/bin/prometheus"},
    interfaces={"10.0.0.4": "eth1"},
)


def _programs(recorded: Any) -> dict[str, dict[str, Any]]:
    found = recorded.of_type("process:Program").values()
    return {args.inputs["name"]: reveal(args.inputs) for args in found}


def _flags(command: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in command if "=" in word)


@pytest.fixture
def looks(go, monkeypatch) -> Callable[..., None]:
    """Say what the hosts have; each has a home folder of its user's."""

    def change(**changes: Any) -> None:
        def look(connection: Any) -> Facts:
            return Facts(**{**vars(FACTS), "home": f"/srv/{connection.user}", **changes})

        monkeypatch.setattr(probe, "probe", look)

    change()
    return change


@pytest.fixture
def rented(bare, recorded, monkeypatch) -> None:
    """The answers of the resources of rented machines."""
    choice = {"instanceType": "gpu_1x_a10", "region": "us-east-1"}
    answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "lambda:Account": lambda _: {"stackId": "0123abcd", "backendId": "4567cdef"},
        "lambda:Choice": lambda _: {**choice, "choices": [choice], "regions": ["us-east-1"]},
        "lambda:SshKey": lambda _: {"publicKey": "ssh-ed25519 LOGIN", "privateKey": PRIVATE},
        "lambda:FirewallRuleset": lambda _: {"ids": {"us-east-1": "rules"}},
        "host:HostKey": lambda _: {"publicKey": KEY, "privateKey": HOST_KEY},
        "lambda:Instance": lambda inputs: {
            "launchedAt": f"2026-11-21T12:0{int(inputs['node'])}:00+00:00"
        },
        "lambda:Active": lambda inputs: {
            "addresses": {
                id_: {"ip": f"198.51.100.{index}", "privateIp": f"10.0.0.{index}"}
                for index, id_ in enumerate(inputs["instanceIds"])
            }
        },
        "host:Reachable": lambda _: {
            "cpus": 30,
            "memoryMib": 200 * 1024,
            "gpus": 1,
            "interface": "eno1",
        },
    }
    create = recorded.new_resource

    def new_resource(args: Any) -> tuple[str, dict[str, Any]]:
        id_, answer = create(args)
        suffix = args.typ.rpartition("/")[2]
        return id_, answer | answers.get(suffix, lambda _: {})(reveal(args.inputs))

    monkeypatch.setattr(recorded, "new_resource", new_resource)


@pytest.mark.parametrize("gpus", [0, 2])
def test_containers_of_another_machine_are_all_of_its_engine(  # A27
    run, recorded, requests, looks, monkeypatch, key_file, gpus
):
    looks(gpus=gpus)
    bounds = dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit"), True)
    info = {**bounds, "Runtimes": {"nvidia": {}}}
    asked: list[Any] = []
    monkeypatch.setattr(docker_engine, "info", lambda machine: asked.append(machine) or info)
    gpu = {"accelerator": "nvidia"} if gpus else {}
    exported = run(runtime="docker", hosts=[ONE], sshKeyFile=str(key_file), notebook=True, **gpu)
    assert [machine.name for machine in asked] == ["ada@192.0.2.4"]
    # Each of pulumi-docker's resources has the provider of that Engine.
    (engine,) = [each for each in requests if each.type == "pulumi:providers:docker"]
    assert engine.object["host"] == "ssh://ada@192.0.2.4:22"
    options = json.loads(engine.object["sshOpts"])
    assert docker_client.ssh_connection(engine.object["host"], options) == asked[0]
    there = [each for each in requests if each.type.startswith("docker:")]
    assert len(there) > 8
    assert all(each.provider.startswith("urn:") for each in there)
    ours = [each for each in requests if each.type.startswith("pulumi-python:dynamic/docker:")]
    hosts = [reveal(rpc.deserialize_properties(each.object))["host"]["host"] for each in ours]
    assert {*hosts} == {"192.0.2.4"}
    containers = recorded.of_type("container:Container")
    services = ("grafana", "jupyter", "prometheus", "ray-head", "ray-worker-0", "versitygw")
    assert sorted(containers) == [f"hosts-{name}" for name in services]
    worker = containers["hosts-ray-worker-0"]
    assert worker.inputs.get("gpus") == ("device=all" if gpus else None)
    assert [node["gpus"] for node in exported["nodes"]] == [0, gpus]
    assert exported["nodes"][1]["cpus"] == 16
    assert exported["dashboardUrl"] == "http://127.0.0.1:8265"
    assert exported["ssh"]["host"] == "192.0.2.4"


def test_containers_of_another_machine_end_by_a_timer_there(  # D3
    run, looks, recorded, monkeypatch
):
    bounds = dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit"), True)
    monkeypatch.setattr(docker_engine, "info", lambda machine: bounds)
    there = {"runtime": "docker", "hosts": [ONE], "containerPrefix": "ada-", "notebook": True}
    run(**there)
    before = {name: args.inputs for name, args in recorded.of_type("docker:Leave").items()}
    assert not recorded.of_type("docker:Deadline")
    exported = run(**there, reservation=RESERVED, drainSeconds=30)
    (timer,) = recorded.of_type("docker:Deadline").values()
    told = reveal(timer.inputs)
    assert told["at"] == exported["expiresAt"] == "2126-01-01T15:55:00+00:00"
    # Two stacks of one name and one login there have two prefixes.
    assert told["folder"] == "/srv/ada/.trainyard/ada-trainyard-test"
    assert (told["network"], told["drainSeconds"]) == ("ada-trainyard-test", 30)
    assert told["leave"] == {
        "container": "ada-ray-head",
        "script": "/etc/trainyard/ray_leave.py",
        "arguments": ["ray-head:6379", "*"],
    }
    where = {"container": "ada-jupyter", "folder": "/var/lib/trainyard/workspace"}
    assert told["notebook"] == where
    assert told["host"]["host"] == "192.0.2.4"
    assert not recorded.of_type("process:Supervisor")
    after = {name: args.inputs for name, args in recorded.of_type("docker:Leave").items()}
    versions = [{name: each["version"] for name, each in of.items()} for of in (before, after)]
    assert "idle" not in DeadlineArgs.of(told).told()
    run(**there, reservation=RESERVED, idleEnd={"minutes": 30})  # B27
    (timer,) = recorded.of_type("docker:Deadline").values()
    waits = json.loads(DeadlineArgs.of(reveal(timer.inputs)).told())
    assert waits["idle"] == {"container": "ada-idle-end", "file": "/tmp/state/state.json"}
    assert versions[0] == versions[1], "a reservation restarts no Ray node"
    looks(python3="")
    run(**there)
    with pytest.raises(pulumi.RunError, match=r"has no python3 of 3\.8 or later"):
        run(**there, reservation=RESERVED)


@pytest.mark.usefixtures("looks")
def test_the_head_is_on_the_first_host_and_a_worker_on_each(run, recorded):
    exported = run(hosts=[ONE, TWO])
    assert set(exported) == names_of_outputs()
    programs = _programs(recorded)
    assert {name: props["machine"] for name, props in programs.items()} == {
        "versitygw": "ada@192.0.2.4",
        "prometheus": "ada@192.0.2.4",
        "ray-head": "ada@192.0.2.4",
        "ray-worker-0": "ada@192.0.2.4",
        "ray-worker-1": "bob@gpu2.lab",
    }
    for props in programs.values():
        user, _, address = props["machine"].partition("@")
        base = f"/srv/{user}/.trainyard/trainyard-test"
        assert props["host"] == {
            "host": address,
            "port": 22,
            "user": user,
            "hostKey": KEY,
            "privateKey": "",
            "agent": f"{base}/agent",
            "python": f"{base}/env/bin/python",
        }
    assert programs["ray-worker-1"]["command"][0] == (
        "/srv/bob/.trainyard/trainyard-test/env/bin/python3"
    )
    assert [(node["name"], node["cpus"], node["gpus"]) for node in exported["nodes"]] == [
        ("ray-head", 0, 0),
        ("ray-worker-0", 16, 2),
        ("ray-worker-1", 16, 2),
    ]
    data = recorded.of_type("process:Data").values()
    assert sorted(args.inputs["folder"] for args in data) == [
        "/srv/ada/.local/share/trainyard/test",
        "/srv/bob/.local/share/trainyard/test",
    ]


@pytest.mark.usefixtures("looks")
def test_the_page_runs_from_the_copy_of_the_client_that_came_with_the_agent(run, recorded):
    run(hosts=[ONE], page=True)
    page = _programs(recorded)["page"]
    program, *words = page["command"]
    assert program.endswith("/env/bin/python")
    assert words[:4] == ["-P", "-m", "trainyard.client", "page"]
    assert page["environment"]["PYTHONPATH"] == program.replace("env/bin/python", "agent")
    (archive, *_) = recorded.of_type("remote:CopyToRemote").values()
    (*_, steps) = recorded.of_type("remote:Command").values()
    assert "environmentFile" not in steps.inputs["create"]
    with tarfile.open(archive.inputs["source"].path) as files:
        assert "trainyard/client/ui/service.py" in files.getnames()


@pytest.mark.usefixtures("looks")
def test_hosts_talk_to_one_another_at_private_addresses(run, recorded):
    exported = run(hosts=[ONE, TWO])
    programs = _programs(recorded)
    for worker, address in (("ray-worker-0", "10.0.0.4"), ("ray-worker-1", "10.0.0.5")):
        flags = _flags(programs[worker]["command"])
        assert flags["--address"] == "10.0.0.4:6379"
        assert flags["--node-ip-address"] == address
        # Gloo takes an interface by its name; an address behind a router is not its own.
        interface = {"10.0.0.4": "eth1", "10.0.0.5": "eth0"}[address]
        assert programs[worker]["environment"]["GLOO_SOCKET_IFNAME"] == interface
    assert _flags(programs["ray-head"]["command"])["--node-ip-address"] == "10.0.0.4"
    # What only the machine's own programs and SSH need is on its loopback.  # F33
    assert _flags(programs["ray-head"]["command"])["--dashboard-host"] == "127.0.0.1"
    assert "--web.listen-address=127.0.0.1:9090" in programs["prometheus"]["command"]
    # Workers of other machines write to the store.
    assert "10.0.0.4:9000" in programs["versitygw"]["command"]
    assert exported["objectStoreEndpoint"] == "http://10.0.0.4:9000"
    assert exported["dashboardUrl"] == "http://127.0.0.1:8265"
    assert exported["ssh"]["host"] == "192.0.2.4"  # the machine that this is meant on


@pytest.mark.usefixtures("looks")
def test_a_single_host_keeps_to_its_loopback(run, recorded):  # F33
    exported = run(hosts=[{"address": "::1", "user": "ada", "hostKey": KEY}])
    programs = _programs(recorded)
    assert set(programs) == {"versitygw", "prometheus", "ray-head", "ray-worker-0"}
    nodes = [programs[name]["command"] for name in ("ray-head", "ray-worker-0")]
    assert [_flags(command)["--node-ip-address"] for command in nodes] == ["127.0.0.2", "127.0.0.3"]
    assert _flags(nodes[1])["--address"] == "127.0.0.2:6379"
    assert "127.0.0.1:9000" in programs["versitygw"]["command"]
    assert exported["objectStoreEndpoint"] == "http://127.0.0.1:9000"
    assert "GLOO_SOCKET_IFNAME" not in programs["ray-worker-0"]["environment"]


@pytest.mark.usefixtures("looks")
def test_the_tracking_server_is_reached_from_every_host(run, recorded):  # A45
    exported = run(hosts=[ONE, TWO], tracking="mlflow")
    assert exported["trackingUrl"] == "http://10.0.0.4:5000"
    assert exported["trackingPassword"] == "value of tracking-admin"
    programs = _programs(recorded)
    server, other = programs["mlflow"], programs["ray-worker-1"]
    assert server["machine"] == "ada@192.0.2.4"
    assert server["command"][0] == "/srv/ada/.trainyard/trainyard-test/env/bin/mlflow"
    assert "--host=10.0.0.4" in server["command"]
    assert server["health"] == ["http://10.0.0.4:5000/health"]
    assert other["environment"]["MLFLOW_TRACKING_URI"] == "http://10.0.0.4:5000"
    assert "value of tracking-admin" in other["secrets"]["mlflow-credentials"]
    # Served by the head alone, and reached through a tunnel.
    assert other["environment"]["TRAINYARD_SERVE_HOST"] == "127.0.0.1"
    assert exported["serveUrl"] == "http://127.0.0.1:8000"


@pytest.mark.usefixtures("looks")
def test_every_machine_checks_the_ports_that_are_opened_there(run, recorded):
    run(hosts=[ONE, TWO])
    opened: dict[str, set[int]] = {}
    for props in _programs(recorded).values():
        opened.setdefault(props["machine"], set()).update(
            int(port["number"]) for port in props["ports"]
        )
    checked = {
        args.inputs["machine"]: {
            int(number) for numbers in args.inputs["ports"].values() for number in numbers
        }
        for args in recorded.of_type("process:Supervisor").values()
    }
    assert checked == opened
    assert len(checked) == 2


@pytest.mark.usefixtures("looks")
def test_what_a_preview_declares_of_hosts_does_not_change_by_itself(run, recorded):
    def declared() -> dict[tuple[str, str], Any]:
        run(hosts=[ONE, TWO])
        found = {(args.typ, args.name): reveal(args.inputs) for args in recorded.created}
        for inputs in found.values():
            inputs.pop("source", None)  # an object of each run; its archive's name tells of it
        return found

    assert declared() == declared()


def test_a_new_environment_needs_room_and_python(run, looks, recorded):
    looks(free_mib=2000, python3="")
    with pytest.raises(pulumi.RunError) as raised:
        run(hosts=[ONE, TWO])
    message = str(raised.value)
    assert message.count("has no python3") == 2
    assert message.count("has 2000 MiB free in /srv/") == 2
    assert recorded.created == []
    run(hosts=[ONE, TWO], pythonEnvironment="/opt/ray")
    commands = [props["command"][0] for props in _programs(recorded).values()]
    assert commands.count("/opt/ray/bin/python3") == 3


def test_hosts_without_gpus_that_are_said_to_have_some_are_refused(run, looks, recorded):
    looks(gpus=1)
    with pytest.raises(pulumi.RunError, match="has 1 GPUs, and its setting gpus says 2"):
        run(hosts=[ONE | {"gpus": 2}])
    run(hosts=[ONE | {"gpus": 0}])
    assert _flags(_programs(recorded)["ray-worker-0"]["command"])["--num-gpus"] == "0"


@pytest.mark.usefixtures("looks")
def test_several_hosts_need_an_object_store(run, recorded, bare):
    (bare / "go").unlink()
    with pytest.raises(pulumi.RunError, match=r"no Go .* 2 hosts cannot share a folder"):
        run(hosts=[ONE, TWO])
    assert recorded.created == []
    exported = run(hosts=[ONE])
    assert exported["storageUrl"] == "file:///srv/ada/.local/share/trainyard/test/storage"


def test_a_folder_is_used_where_it_is_asked_for(run, looks, recorded):
    looks()
    exported = run(hosts=[ONE], objectStore="directory", dataDir="/srv/a~b")
    assert exported["storageUrl"] == "file:///srv/a~b/storage"
    assert "versitygw" not in _programs(recorded)


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("store", ["versitygw", "minio"])
def test_the_store_of_this_machine_goes_to_the_first_host(run, recorded, store):
    run(hosts=[ONE, TWO], objectStore=store)
    (built,) = recorded.of_type("host:GoTool").values()
    (copy,) = recorded.of_type("host:Executable").values()
    inputs = reveal(copy.inputs)
    assert inputs["source"] == built.inputs["path"]
    assert inputs["path"] == f"/srv/ada/.trainyard/trainyard-test/bin/{store}"
    assert inputs["machine"] == "ada@192.0.2.4"
    assert _programs(recorded)[store]["command"][0] == inputs["path"]


def test_without_prometheus_there_is_no_monitoring(run, looks, recorded):
    looks(programs={})
    assert run(hosts=[ONE, TWO])["prometheusUrl"] == ""
    assert "prometheus" not in _programs(recorded)
    supervisors = recorded.of_type("process:Supervisor")
    assert "prometheusPort" not in supervisors["host-0-supervisor"].inputs["ports"]


def test_alertmanager_runs_where_the_first_host_has_it(run, looks, recorded):
    looks(programs={"prometheus": "/usr/bin/prometheus", "alertmanager": "/opt/alertmanager"})
    exported = run(hosts=[ONE, TWO], alertWebhookUrl="https://chat.example/hook")
    command = _programs(recorded)["alertmanager"]["command"]
    assert command[0] == "/opt/alertmanager"
    assert "--web.listen-address=127.0.0.1:9093" in command
    assert exported["alertmanagerUrl"] == "http://127.0.0.1:9093"


@pytest.mark.usefixtures("looks")
def test_hosts_of_groups_offer_what_their_group_says(run, recorded):  # B24
    exported = run(
        hosts=[ONE | {"group": "head"}, TWO | {"group": "tpu"}],
        nodeGroups=[{"name": "head", "cpus": 1}, {"name": "tpu", "resources": {"TPU": 4}}],
    )
    nodes = [(node["group"], node["cpus"], node["resources"]) for node in exported["nodes"]]
    assert nodes == [("", 0, {}), ("head", 1, {}), ("tpu", 16, {"TPU": 4})]
    for name, label in (("ray-worker-0", "head"), ("ray-worker-1", "tpu")):
        assert f"--labels=group={label}" in _programs(recorded)[name]["command"]


@pytest.mark.usefixtures("looks")
def test_the_head_can_wake_what_other_hosts_have_parked(run, recorded):  # F35
    exported = run(
        hosts=[ONE | {"group": "a"}, TWO | {"group": "a"}, THREE | {"group": "b"}],
        nodeGroups=[{"name": "a", "min": 1}, {"name": "b"}],
    )
    assert [node["onDemand"] for node in exported["nodes"]] == [False, True, True, False]
    programs = _programs(recorded)
    head, worker = programs["ray-head"], programs["ray-worker-1"]
    assert worker["onDemand"]
    assert "onDemand" not in programs["ray-worker-2"]
    known = json.loads(head["files"]["autoscaling.json"])
    assert known["available_node_types"]["a"]["min_workers"] == 1
    assert known["available_node_types"]["a"]["max_workers"] == 2
    # The head's own machine has the worker in the hands of its supervisord.
    assert known["provider"]["switches"] == {
        "ray-worker-1": "http://10.0.0.5:8767",
        "ray-worker-2": "http://10.0.0.6:8767",
    }
    switch = programs["node-switch-1"]
    assert switch["machine"] == worker["machine"]
    assert switch["health"] == ["http://10.0.0.5:8767/health"]
    told = json.loads(switch["secrets"]["settings.json"])
    assert (told["address"], told["program"]) == ("10.0.0.5", "ray-worker-1")
    name = known["provider"]["token"].rpartition("/")[2]
    assert head["secrets"][name] == told["token"]
    assert name not in worker["secrets"]
    supervisors = recorded.of_type("process:Supervisor")
    assert "nodeSwitchPort" not in supervisors["host-0-supervisor"].inputs["ports"]
    assert supervisors["host-1-supervisor"].inputs["ports"]["nodeSwitchPort"] == [8767]
    for args in recorded.created:
        assert told["token"] not in str(mask(args.inputs)), args.name


@pytest.mark.usefixtures("looks")
def test_a_key_of_the_users_is_in_secrets_only(run, recorded, key_file):  # F35
    exported = run(hosts=[ONE, TWO], sshKeyFile=str(key_file))
    secret = key_file.read_text().splitlines()[2]
    for args in recorded.created:
        assert secret not in str(mask(args.inputs)), args.name
    props = _programs(recorded)["ray-worker-1"]
    assert props["host"]["privateKey"] == key_file.read_text()
    # Users have the file: the outputs name it and hold no key.
    assert exported["ssh"]["keyFile"] == str(key_file)
    assert secret not in str(exported)


@pytest.mark.usefixtures("looks")
def test_a_key_that_others_can_read_ends_the_program(run, recorded, key_file):  # F38
    key_file.chmod(0o644)
    with pytest.raises(
        pulumi.RunError, match=r"sshKeyFile: .* may be read by others .mode 0644.*chmod 600"
    ):
        run(hosts=[ONE], sshKeyFile=str(key_file))
    assert recorded.created == []


@pytest.mark.usefixtures("looks")
def test_without_ray_hosts_get_its_files_and_a_cluster_file(run, recorded, key_file):  # A22 A23 A24
    hosts = [ONE, TWO | {"user": "ada"}]
    exported = run(hosts=hosts, startRay=False, sshKeyFile=str(key_file))
    assert set(_programs(recorded)) == {"versitygw", "prometheus"}
    files = [reveal(args.inputs) for args in recorded.of_type("process:Files").values()]
    assert sorted(props["machine"] for props in files) == ["ada@192.0.2.4", "ada@gpu2.lab"]
    for props in files:
        assert props["name"] == "ray-node"
        assert props["secrets"]["ray-token"] == "value of ray-token"
    found = yaml.safe_load(exported["rayClusterFile"])
    assert found["provider"] == {
        "type": "local",
        "head_ip": "192.0.2.4",
        "worker_ips": ["10.0.0.5"],
    }
    assert found["auth"] == {"ssh_user": "ada", "ssh_private_key": str(key_file)}
    assert (found["min_workers"], found["max_workers"]) == (1, 1)
    ray = "/srv/ada/.trainyard/trainyard-test/env/bin/ray"
    stop, head = found["head_start_ray_commands"]
    assert stop == f"{ray} stop"
    assert f"{ray} start --head --port=6379" in head
    assert "--node-ip-address=10.0.0.4" in head
    assert head.endswith('--autoscaling-config="$HOME/ray_bootstrap_config.yaml"')
    stop, worker = found["worker_start_ray_commands"]
    assert f"{ray} start --address=10.0.0.4:6379" in worker
    assert "--disable-usage-stats" in worker  # A28
    for command in (head, worker):
        token = "/ray-node/files/ray-token"
        assert "RAY_AUTH_MODE=token" in command  # F34
        assert "TRAINYARD_MARK=" in command  # by which a destroy finds its processes
        assert f"{token} " in command
        assert "value of " not in command  # the file says where secrets are, not what they are
    names = [node["name"] for node in exported["nodes"]]
    assert names == ["ray-head", "ray-worker-1"]  # the launcher starts none next to the head
    scripts = [args.inputs["create"] for args in recorded.of_type("remote:Command").values()]
    assert all(f'ln -sfn {ray} "$HOME/.local/bin/ray"' in script for script in scripts)


@pytest.mark.usefixtures("looks")
def test_the_cluster_file_of_one_host_has_no_worker(run):  # A22
    found = yaml.safe_load(run(hosts=[ONE], startRay=False)["rayClusterFile"])
    assert found["provider"]["worker_ips"] == []
    assert (found["min_workers"], found["max_workers"]) == (0, 0)
    assert "ssh_private_key" not in found["auth"]  # the SSH agent's


@pytest.mark.usefixtures("looks")
def test_commands_of_the_user_come_first(run, recorded, requests):
    run(hosts=[ONE], setupCommands=["module load cuda", "true"])
    commands = recorded.of_type("remote:Command")
    assert commands["host-0-setup-commands"].inputs["create"] == ("set -e\nmodule load cuda\ntrue")
    after = {
        request.name: [urn.rpartition("::")[2] for urn in request.dependencies]
        for request in requests
    }
    assert "host-0-setup-commands" in after["host-0-agent"]
    assert "host-0-agent" in after["host-0-environment"]
    for name in ("host-0-data", "host-0-supervisor"):
        assert "host-0-environment" in after[name]


@pytest.mark.usefixtures("looks")
def test_a_volume_that_a_machine_lacks_ends_up_with_one_message(run, recorded, tmp_path):
    mine = tmp_path / "it's mine"
    run(hosts=[ONE], volumes=[{"name": "mine", "path": str(mine)}], setupCommands=["true"])
    script = recorded.of_type("remote:Command")["host-0-setup-commands"].inputs["create"]
    shell = ["/bin/sh", "-c", script]
    done = ran.run(shell, env={"PATH": os.defpath})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{mine} is not a folder of {socket.gethostname()}: make")
    mine.mkdir()
    assert ran.run(shell, env={"PATH": os.defpath}).returncode == 0


HOME = ["192.0.2.0/24"]
KEY_NAME = "test-ssh-010"
RENT = {"gpus": 1, "instances": 2, "ttlHours": 8, "fileSystems": {"data": "/lambda/nfs/data"}}


@pytest.mark.usefixtures("rented", "go")
def test_rented_machines_are_hosts_of_the_stack(run, recorded):  # A1 A12 A21
    own = {"headNodeName": "ray_head_node", "sshKeyName": KEY_NAME, "bootTimeoutMinutes": 7}
    exported = run(allowedCidrs=HOME, lambdaCloud=RENT | own)
    instances = recorded.of_type("lambda:Instance")
    assert len(instances) == 2
    (key,) = recorded.of_type("lambda:SshKey").values()
    assert (key.inputs["name"], key.inputs["keyFile"]) == (KEY_NAME, f"~/.ssh/{KEY_NAME}.pem")
    (firewall,) = recorded.of_type("lambda:FirewallRuleset").values()
    assert [each["sourceNetwork"] for each in firewall.inputs["rules"]] == HOME
    (active,) = recorded.of_type("lambda:Active").values()
    assert active.inputs["timeoutMinutes"] == 7
    for index, name in enumerate(["ray_head_node", "trainyard-test-1"]):
        inputs = instances[f"lambda-instance-{index}"].inputs
        assert inputs["name"] == name
        assert inputs["hostname"] == f"test-{index}"
        assert inputs["node"] == index
        assert inputs["stackId"] == "0123abcd"
        assert inputs["sshKeyName"] == KEY_NAME
        assert [each["instanceType"] for each in inputs["choices"]] == ["gpu_1x_a10"]
        assert inputs["firewallRulesetIds"] == {"us-east-1": "rules"}
        assert inputs["fileSystemMounts"] == {"/lambda/nfs/data": "lambda-file-system-data-id"}
        tags = {"trainyard:project", "trainyard:stack", "trainyard:owner", "trainyard:backend"}
        assert tags == set(inputs["tags"])
        assert inputs["tags"]["trainyard:backend"] == "4567cdef"
        config = yaml.safe_load(reveal(inputs["userData"]))
        assert config["ssh_keys"]["ed25519_private"] == HOST_KEY
        assert "ssh-ed25519 LOGIN" in str(config["users"])
    programs = _programs(recorded)
    assert {name: props["machine"] for name, props in programs.items()} == {
        "versitygw": "lambda-instance-0-id",
        "prometheus": "lambda-instance-0-id",
        "ray-head": "lambda-instance-0-id",
        "ray-worker-0": "lambda-instance-0-id",
        "ray-worker-1": "lambda-instance-1-id",
    }
    host = programs["ray-worker-1"]["host"]
    assert host["host"] == "198.51.100.1"
    assert (host["user"], host["hostKey"]) == ("trainyard", KEY)
    assert host["instanceId"] == "lambda-instance-1-id"
    flags = _flags(programs["ray-worker-1"]["command"])
    assert flags["--address"] == "10.0.0.0:6379"
    assert flags["--node-ip-address"] == "10.0.0.1"
    assert (flags["--num-cpus"], flags["--num-gpus"]) == ("30", "1")
    assert exported["expiresAt"] == "2026-11-21T20:00:00+00:00"  # of the one that ends first
    for index in range(2):
        deadline = reveal(recorded.of_type("lambda:Deadline")[f"lambda-deadline-{index}"].inputs)
        assert deadline["at"] == f"2026-11-21T20:0{index}:00+00:00"
        assert deadline["machine"] == f"lambda-instance-{index}-id"
        assert deadline["host"]["user"] == "ubuntu"
    assert exported["ssh"] == {
        "host": "198.51.100.0",
        "port": 22,
        "user": "trainyard",
        "hostKey": KEY,
        "keyFile": "",
        "privateKey": PRIVATE,
    }


@pytest.mark.usefixtures("rented", "go")
@pytest.mark.parametrize(
    ("bounds", "told_bounds"),
    [
        ({"cpuPercent": 50}, (50, 0)),
        (
            {key.removeprefix("idleEnd."): int(value) for *_, key, value in BOUNDS.of("train")},
            (100, 5),
        ),
    ],
    ids=["CPU", "as on the page"],
)
def test_timers_ask_the_heads_machine_whether_the_cluster_is_idle(  # F35
    run, recorded, bounds, told_bounds
):
    exported = run(allowedCidrs=HOME, lambdaCloud=RENT, idleEnd={"minutes": 30, **bounds})
    assert exported["idleEndUrl"] == "http://10.0.0.0:8768"
    for index in range(2):
        deadline = recorded.of_type("lambda:Deadline")[f"lambda-deadline-{index}"].inputs
        assert reveal(deadline)["idle"] == {
            "url": "http://10.0.0.0:8768/verdict",
            "token": exported["idleEndToken"],
            "last": index == 0,
        }
        assert mask(deadline)["idle"] == "[secret]"
    watch = _programs(recorded)["idle-end"]
    assert watch["machine"] == "lambda-instance-0-id"
    told = json.loads(watch["secrets"]["idle.json"])
    assert (told["listen"], told["idleSeconds"]) == ("10.0.0.0", 1800)
    assert (told["cpuPercent"], told["gpuPercent"]) == told_bounds
    assert told["deadline"] == datetime.fromisoformat(exported["expiresAt"]).timestamp()
    assert told["dashboard"] == "http://127.0.0.1:8265"
    assert told["source"]["url"] == exported["storageUrl"]


@pytest.mark.usefixtures("rented", "go")
def test_what_is_on_a_rented_machine_goes_with_it(run, requests):
    run(allowedCidrs=HOME, lambdaCloud=RENT)
    there = ("process:Data", "process:Supervisor", "process:Program", "host:Reachable")
    there += ("host:Executable", "command:remote", "lambda:Deadline")
    on_machines = [
        request
        for request in requests
        if request.custom and any(kind in request.type for kind in there)
    ]
    assert len(on_machines) == 18, sorted(request.name for request in on_machines)
    for request in on_machines:
        second = "host-1" in request.name or request.name.endswith("-1")
        instance = f"::lambda-instance-{int(second)}"
        assert request.deletedWith.endswith(instance), request.name


@pytest.mark.usefixtures("rented")
def test_containers_of_a_rented_machine_go_with_it(run, recorded, requests):  # A27
    rent = {"candidates": [{"type": "gpu_1x_a10"}]}
    exported = run(
        allowedCidrs=HOME,
        lambdaCloud=rent,
        runtime="docker",
        accelerator="nvidia",
        keepData=False,
        notebook=True,
        reservation=RESERVED,
        idleEnd={"minutes": 30},
    )
    (timer,) = recorded.of_type("lambda:Deadline").values()  # D3
    assert timer.inputs["idle"]["value"]["url"] == "http://127.0.0.1:8768/verdict"
    watch = recorded.of_type("container:Container")["hosts-idle-end"].inputs
    files = {each["file"]: each["content"] for each in watch["uploads"]["value"]}
    assert json.loads(files["/etc/trainyard/idle.json"])["source"]["url"] == "s3://ray"
    assert not recorded.of_type("docker:Deadline")
    (engine,) = [each for each in requests if each.type == "pulumi:providers:docker"]
    # The services' user of other stacks may not become root, as one who makes containers can.
    assert engine.object["host"] == "ssh://ubuntu@198.51.100.0:22"
    assert "~/.ssh/trainyard.pem" in json.loads(engine.object["sshOpts"])
    kinds = ("docker:index/container", "docker:index/volume", "docker:index/network")
    kinds += ("dynamic/docker:Node", "dynamic/docker:Ready", "dynamic/docker:Leave")
    there = [each for each in requests if each.custom and any(k in each.type for k in kinds)]
    assert {each.deletedWith.rpartition("::")[2] for each in there} == {"lambda-instance-0"}
    for args in recorded.created:
        assert "canary" not in str(mask(args.inputs)), args.name
    services = ("grafana", "idle-end", "jupyter", "prometheus", "ray-head", "ray-worker-0")
    services += ("versitygw",)
    assert sorted(recorded.of_type("container:Container")) == [f"hosts-{n}" for n in services]
    worker = recorded.of_type("container:Container")["hosts-ray-worker-0"]
    assert worker.inputs["gpus"] == "device=all"
    assert exported["nodes"][1]["gpus"] == 1
    assert exported["ssh"]["user"] == "ubuntu"


@pytest.mark.usefixtures("rented", "go")
def test_secrets_of_rented_machines_are_in_secrets_only(run, recorded, requests):  # F35
    run(allowedCidrs=HOME, lambdaCloud=RENT, lambdaApiKey="")
    for args in recorded.created:
        assert "canary" not in str(mask(args.inputs)), args.name
        if "userData" in args.inputs:
            assert mask(args.inputs)["userData"] == "[secret]"
    keys = [r for r in requests if r.type.endswith(("host:HostKey", "lambda:SshKey"))]
    assert len(keys) == 3
    for request in keys:
        assert list(request.additionalSecretOutputs) == ["privateKey"], request.name


@pytest.mark.usefixtures("rented")
@pytest.mark.parametrize("cidrs", [["0.0.0.0/0"], ["192.0.2.0/24", "198.51.100.7/32"]])
def test_nothing_but_ssh_is_let_in(run, recorded, cidrs):  # F33
    run(lambdaCloud={"gpus": 1}, allowedCidrs=cidrs)
    (rules,) = recorded.of_type("lambda:FirewallRuleset").values()
    assert [rule["sourceNetwork"] for rule in rules.inputs["rules"]] == cidrs
    for rule in rules.inputs["rules"]:
        assert (rule["protocol"], rule["firstPort"], rule["lastPort"]) == ("tcp", 22, 22)


@pytest.mark.usefixtures("rented")
def test_a_machine_without_an_end_has_no_deadline(run, recorded, warnings):
    exported = run(allowedCidrs=HOME, lambdaCloud={"candidates": [{"type": "gpu_1x_a10"}]})
    assert exported["expiresAt"] == ""
    assert recorded.of_type("lambda:Deadline") == {}
    (told,) = warnings
    assert "have no end, and cost money until `make down`; lambdaCloud.ttlHours sets one" in told
    (choice,) = recorded.of_type("lambda:Choice").values()
    assert choice.inputs["candidates"] == [{"type": "gpu_1x_a10", "region": ""}]
    assert (choice.inputs["gpus"], choice.inputs["count"]) == (0, 1)
    assert exported["storageUrl"] == f"file://{cloud_init.HOME}/.local/share/trainyard/test/storage"


@pytest.mark.usefixtures("rented")
def test_what_several_rented_machines_lack_is_told_before_they_are(run, recorded):
    with pytest.raises(pulumi.RunError, match=r"no Go .* 2 hosts cannot share a folder"):
        run(allowedCidrs=HOME, lambdaCloud=RENT)
    assert recorded.created == []


@pytest.mark.usefixtures("rented", "go")
def test_the_cluster_file_of_rented_machines_names_the_key_of_the_account(  # A22 A24
    run, recorded, warnings
):
    cloud = RENT | {"sshKeyName": "test-ssh-010"}
    exported = run(allowedCidrs=HOME, lambdaCloud=cloud, startRay=False)
    # F35: jobs can log in as the admin, so no machine has the account's key. All have an end.
    assert recorded.of_type("lambda:Deadline") == {}
    assert {each.inputs["ttlHours"] for each in recorded.of_type("lambda:Instance").values()} == {8}
    assert exported["expiresAt"] == ""
    (told,) = warnings
    assert "no instance ends itself" in told
    assert "or until `train reap --past-end`" in told
    found = yaml.safe_load(exported["rayClusterFile"])
    assert found["auth"] == {
        "ssh_user": "trainyard",
        "ssh_private_key": "~/.ssh/test-ssh-010.pem",
    }
    assert found["provider"]["head_ip"] == "198.51.100.0"
    assert found["provider"]["worker_ips"] == ["10.0.0.1"]


def test_programs_hold_no_secret_in_their_environment(run, looks, recorded):  # F35
    looks()
    run(hosts=[ONE, TWO])
    for name, props in _programs(recorded).items():
        seen = json.dumps([props["command"], props["environment"], props["files"]])
        assert "value of " not in seen, name


PICK = {
    "instanceType": "gpu_1x_a10",
    "region": "us-east-1",
    "hourlyCost": 0.75,
    "gpus": 1,
    "gpuDescription": "A10 (24 GB PCIe)",
    "vcpus": 30,
    "memoryMib": 200 * 1024,
}
GROUP = {"name": "gpu", "min": 0, "max": 3, "idleMinutes": 2}


@pytest.fixture
def grown(rented, recorded, monkeypatch, tmp_path) -> Callable[[str], None]:
    """A stack that is up, with an elastic group whose machines of some names are requested."""
    create = recorded.new_resource

    def new_resource(args: Any) -> tuple[str, dict[str, Any]]:
        id_, answer = create(args)
        if args.typ.endswith("lambda:Choice"):
            # The first one had no room when the stack came up.
            answer |= {"choices": [{**PICK, "instanceType": "gpu_8x", "vcpus": 240}, PICK]}
        if args.typ.endswith("lambda:Instance"):
            answer |= {"instanceType": "gpu_1x_a10", "region": "us-east-1"}
        return id_, answer

    monkeypatch.setattr(recorded, "new_resource", new_resource)
    instance = "pulumi-python:dynamic/lambda:Instance"
    there = [{"type": instance, "inputs": {"node": number}} for number in (0, 1)]
    state = {"version": 3, "checkpoint": {"latest": {"resources": there}}}
    path = tmp_path / ".pulumi" / "stacks" / "trainyard" / "test.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(state))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    return lambda names: monkeypatch.setenv("TRAINYARD_REQUESTED", names)


@pytest.mark.usefixtures("rented", "go")
def test_rented_machines_end_with_the_reservation(run, recorded):  # D3 D4
    end = "2126-01-01T15:55:00+00:00"
    without = {key: value for key, value in RENT.items() if key != "ttlHours"} | {"budget": 1e7}
    exported = run(
        allowedCidrs=HOME,
        lambdaCloud=without,
        reservation=RESERVED,
        idleEnd={"minutes": 30},
        owner="ada",
    )
    assert (exported["expiresAt"], exported["owner"]) == (end, "ada")
    deadlines = [args.inputs for args in recorded.of_type("lambda:Deadline").values()]
    assert [each["at"] for each in deadlines] == [end, end]
    whole = datetime.fromisoformat(end) - datetime.fromisoformat(RESERVED["start"])
    hours = whole.total_seconds() / 3600
    for kind in ("lambda:Choice", "lambda:Instance"):
        assert {args.inputs["ttlHours"] for args in recorded.of_type(kind).values()} == {hours}
    timers = recorded.of_type("process:Supervisor")
    assert {args.inputs["reservation"]["end"] for args in timers.values()} == {end}
    instances = [args.inputs for args in recorded.of_type("lambda:Instance").values()]
    assert [each["tags"]["trainyard:owner"] for each in instances] == ["ada"] * 2
    names = [(each["name"], each["hostname"]) for each in instances]
    assert names == [(f"trainyard-test-ada-{index}", f"test-ada-{index}") for index in range(2)]
    leave = timers["host-0-supervisor"].inputs["reservation"]["leave"]
    assert leave["arguments"] == ["10.0.0.0:6379", "*"]
    assert "leave" not in timers["host-1-supervisor"].inputs["reservation"]
    with pytest.raises(pulumi.RunError, match=r"ttlHours = .*is a second end"):
        run(allowedCidrs=HOME, lambdaCloud=RENT, reservation=RESERVED)
    with pytest.raises(pulumi.RunError, match=r"budget = .*needs an end"):
        run(allowedCidrs=HOME, lambdaCloud=without)


@pytest.mark.usefixtures("go")
def test_of_a_group_the_requested_ones_are_rented(run, recorded, grown):  # B1
    grown("ray-worker-3")
    exported = run(allowedCidrs=HOME, lambdaCloud=RENT, nodeGroups=[GROUP])
    instances = recorded.of_type("lambda:Instance")
    assert sorted(instances) == [f"lambda-instance-{number}" for number in (0, 1, 3)]
    inputs = instances["lambda-instance-3"].inputs
    assert inputs["name"] == "trainyard-test-3"
    assert reveal(inputs["userData"]).startswith("#cloud-config")
    # Whatever becomes of it, the permanent machines do not wait.
    waits = {name: args.inputs["instanceIds"] for name, args in recorded.of_type("Active").items()}
    assert {name: len(ids) for name, ids in waits.items()} == {
        "lambda-active": 2,
        "lambda-active-3": 1,
    }
    # It ends with the stack, which began with the first instance, and not hours after.
    deadlines = recorded.of_type("lambda:Deadline")
    assert len({args.inputs["at"] for args in deadlines.values()}) == 2
    assert deadlines["lambda-deadline-3"].inputs["at"] == exported["expiresAt"]
    # Bounds hold for all that there may be.
    (choice,) = recorded.of_type("lambda:Choice").values()
    assert (choice.inputs["least"], choice.inputs["count"]) == (2, 5)
    programs = _programs(recorded)
    assert {name for name in programs if name.startswith("ray-worker")} == {
        *("ray-worker-0", "ray-worker-1", "ray-worker-3")
    }
    worker = programs["ray-worker-3"]
    assert "--num-cpus=30" in worker["command"]
    assert worker["environment"]["RAY_NODE_TYPE_NAME"] == "gpu"
    assert worker["environment"]["TRAINYARD_JOINS_ONCE"] == "1"
    assert "TRAINYARD_JOINS_ONCE" not in programs["ray-worker-1"]["environment"]
    assert not worker.get("onDemand")  # it is there to run
    nodes = {node["name"]: node for node in exported["nodes"]}
    assert [n["name"] for n in nodes.values() if n["onDemand"]] == [
        *("ray-worker-2", "ray-worker-3", "ray-worker-4")
    ]
    for name in ("ray-worker-2", "ray-worker-3"):
        assert (nodes[name]["cpus"], nodes[name]["gpus"]) == (30, 1)
        assert (nodes[name]["hourlyCost"], nodes[name]["group"]) == (0.75, "gpu")
        assert nodes[name]["launched"] == (name == "ray-worker-3")
    assert exported["requestsFolder"].endswith("/requests")


@pytest.mark.usefixtures("go")
def test_a_head_does_not_notice_which_machines_of_a_group_are_launched(run, recorded, grown):
    found = []
    for names in ("", "ray-worker-1,ray-worker-3"):
        grown(names)
        run(allowedCidrs=HOME, lambdaCloud={"gpus": 1}, nodeGroups=[GROUP])
        programs = _programs(recorded)
        found.append({name: programs[name] for name in programs if "worker" not in name})
        found[-1]["ray-worker-0"] = programs["ray-worker-0"]
    assert found[0] == found[1]  # else they would be restarted, and jobs lost
    config = json.loads(found[0]["ray-head"]["files"]["autoscaling.json"])
    assert config["available_node_types"]["gpu"]["max_workers"] == 3
    assert config["provider"]["group"] == ["ray-worker-1", "ray-worker-2", "ray-worker-3"]
    assert config["provider"]["requests"].endswith("/requests")
