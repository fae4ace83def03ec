"""Settings of stacks on other machines: what they mean, and every kind of bad value."""

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cluster import services
from infra.machines.local import LocalHost
from infra.places.lambda_cloud.settings import LambdaCloud
from infra.places.ssh.settings import Hosts
from infra.settings import config
from infra.settings import nodes as node_settings
from tests.unit.infra.conftest import faults, is_named

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKx0bm90LWEtcmVhbC1rZXktYnV0LW9mLWl0cy1mb3Jt"
ONE = {"address": "192.0.2.4", "user": "ubuntu", "hostKey": KEY}
TWO = ONE | {"address": "gpu-2.lab.example"}
RENTED = {"gpus": 1}
HOSTS = {"hosts": [ONE, TWO]}
CIDRS = {"allowedCidrs": ["192.0.2.0/24"]}
PROCESS = {"runtime": "process"}


def _host(**fields: Any) -> dict[str, Any]:
    return {"hosts": [ONE | fields]}


def _rent(**fields: Any) -> dict[str, Any]:
    return {"lambdaCloud": RENTED | fields, **CIDRS}


def _of(**candidate: str) -> dict[str, Any]:
    return {"lambdaCloud": {"candidates": [candidate]}}


INJECTIONS = [  # F39
    "$(touch x)",
    "`touch x`",
    "a;touch x",
    ";touch x",
    "-x",
    "a b",
    "a\nb",
    "a'b",
    'a"b',
    "-oProxyCommand=x",
    "../a",
    "a/b",
    "{x}",
    "a\0",
    "größe",
    "a\u202eb",
    "x" * 10_000,
    "!!python/object:os.system",
    "",
    " ",
    "%s",
]
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("hosts", {"hosts": [ONE | {"address": f"a{i}"} for i in range(65)]}, "at most 64"),
    ("hosts[0]", {"hosts": ["192.0.2.4"]}, "must be an object"),
    ("hosts[0].adress", _host(adress="a"), "did you mean address"),
    ("hosts[0].user", {"hosts": [{"address": "a", "hostKey": KEY}]}, "a user's name"),
    ("hosts[0].address", {"hosts": [{"user": "a", "hostKey": KEY}]}, "a host name or an IP"),
    ("hosts[0].hostKey", {"hosts": [{"address": "a", "user": "b"}]}, "ssh-keyscan -t ed25519 a;"),
    ("hosts[0].hostKey", _host(hostKey="AAAAC3NzaC1lZDI1NTE5"), "public host key"),
    ("hosts[0].hostKey", _host(hostKey=f"192.0.2.4 {KEY}"), "leave out the name"),
    ("hosts[0].hostKey", _host(hostKey=f"{KEY} comment"), "and the comment"),
    ("hosts[0].hostKey", _host(hostKey=f"{KEY}\n"), "public host key"),
    ("hosts[0].hostKey", _host(hostKey="ssh-dss AAAA"), "public host key"),
    ("hosts[0].port", _host(port=0), "from 1 to 65535"),
    ("hosts[0].port", _host(port=65536), "from 1 to 65535"),
    ("hosts[0].gpus", _host(gpus=-1), "from 0 to 64"),
    ("hosts[1]", {"hosts": [ONE, ONE]}, "is listed twice"),
    ("hosts[1]", {"hosts": [ONE, ONE | {"user": "other"}]}, "is listed twice"),
    ("hosts[1].privateAddress", {"hosts": [ONE, ONE | {"port": 23}]}, "that of another host"),
    ("hosts[1].privateAddress", {"hosts": [ONE, TWO | {"privateAddress": "192.0.2.4"}]}, "another"),
    ("hosts[1].privateAddress", {"hosts": [ONE, ONE | {"address": "2001:db8::4"}]}, "IPv4"),
    ("hosts", HOSTS | {"lambdaCloud": RENTED}, "two places for one stack"),
    ("lambdaCloud.gpu", _rent(gpu=1), "did you mean gpus"),
    ("lambdaCloud", {"lambdaCloud": {"instances": 2}}, "either candidates or gpus"),
    ("lambdaCloud", _rent(candidates=[{"type": "gpu_1x_a10"}]), "either candidates or gpus"),
    ("lambdaCloud.gpus", _rent(gpus=65, candidates=[{"type": "gpu_1x_a10"}]), "from 1 to 64"),
    ("lambdaCloud.instances", _rent(instances=0), "from 1 to 64"),
    ("lambdaCloud.instances", _rent(instances=65), "from 1 to 64"),
    ("lambdaCloud.gpuMemoryGib", _rent(gpuMemoryGib=-40), "from 1 to 1024"),
    ("lambdaCloud.candidates", {"lambdaCloud": {"candidates": "gpu_1x_a10"}}, "must be a list"),
    ("lambdaCloud.candidates[0]", {"lambdaCloud": {"candidates": ["a10"]}}, "must be an object"),
    ("lambdaCloud.candidates[0].regoin", _of(type="gpu_1x_a10", regoin="x"), "did you mean region"),
    ("lambdaCloud.candidates[0].region", _of(type="gpu_1x_a10", region=""), "lowercase letters"),
    ("lambdaCloud.candidates[0].type", _of(region="us-east-1"), "such as gpu_1x_a10"),
    ("lambdaCloud.maxHourlyCost", _rent(maxHourlyCost=-1), "from 0 to 1e+06"),
    ("lambdaCloud.budget", _rent(budget=-0.5, ttlHours=1), "from 0 to"),
    ("lambdaCloud.budget", _rent(budget=50), "needs an end"),
    ("lambdaCloud.ttlHours", _rent(ttlHours=-1), "from 0 to 8760"),
    ("lambdaCloud.ttlHours", _rent(ttlHours=9000), "from 0 to 8760"),
    ("lambdaCloud.ttlHours", {"lambdaCloud": '{"gpus": 1, "ttlHours": NaN}'}, "from 0 to 8760"),
    ("lambdaCloud.sshKeyName", _rent(sshKeyName="../id"), "letters, digits"),
    ("lambdaCloud.bootTimeoutMinutes", _rent(bootTimeoutMinutes=0), "from 1 to 180"),
    ("lambdaCloud.bootTimeoutMinutes", _rent(bootTimeoutMinutes=200), "from 1 to 180"),
    ("lambdaCloud.fileSystems", _rent(fileSystems=["data"]), "must be an object"),
    *(
        (f"lambdaCloud.fileSystems.{name}", _rent(fileSystems={name: "/data/x"}), "after a letter")
        for name in ("1data", "data_1", "x" * 61)
    ),
    ("lambdaCloud.fileSystems.data", _rent(fileSystems={"data": "mnt"}), "must be a path below"),
    ("lambdaCloud.fileSystems.data", _rent(fileSystems={"data": "/"}), "must be a path below"),
    ("lambdaCloud.fileSystems.data", _rent(fileSystems={"data": "/data/../etc"}), "a path below"),
    ("lambdaCloud.fileSystems.data", _rent(fileSystems={"data": "/a b"}), "must be a path below"),
    ("lambdaCloud.fileSystems.data", _rent(fileSystems={"data": 1}), "must be a path below"),
    ("lambdaCloud.fileSystems.b", _rent(fileSystems=dict.fromkeys("ab", "/data/x")), "another"),
    # Settings of other machines, without such machines.
    ("sshKeyFile", {"sshKeyFile": "/srv/key"}, "neither hosts nor lambdaCloud is set"),
    ("setupCommands", {"setupCommands": ["true"]}, "neither hosts nor lambdaCloud is set"),
    ("pythonEnvironment", {"pythonEnvironment": "/opt/x"}, "neither hosts nor lambdaCloud is set"),
    ("startRay", {"startRay": False}, "neither hosts nor lambdaCloud is set"),
    ("sshKeyFile", HOSTS | {"sshKeyFile": "key"}, "must be an absolute path"),
    ("sshKeyFile", HOSTS | {"sshKeyFile": "/srv/../key"}, "without '..'"),
    ("sshKeyFile", HOSTS | {"sshKeyFile": "~nobody-here/key"}, "must be an absolute path"),
    ("setupCommands[1]", HOSTS | {"setupCommands": ["true", ""]}, "a command for the host's shell"),
    ("setupCommands[0]", HOSTS | {"setupCommands": [["true"]]}, "a command for the host's shell"),
    ("setupCommands[0]", HOSTS | {"setupCommands": ["a\0b"]}, "a command for the host's shell"),
    ("pythonEnvironment", HOSTS | {"pythonEnvironment": "env"}, "must be an absolute path"),
    ("environmentFile", {"environmentFile": "x.txt"}, "neither hosts nor lambdaCloud is set"),
    ("environmentFile", HOSTS | {"environmentFile": "Pipfile"}, "ends with .txt, .yaml or .yml"),
    ("environmentFile", HOSTS | {"environmentFile": "x.txt", "pythonEnvironment": "/x"}, "remove"),
    (
        "idleEnd",
        _rent(ttlHours=8) | {"startRay": False, "idleEnd": {"minutes": 30}},
        "nodes that the stack starts",
    ),
    ("lambdaCloud.budget", _rent(ttlHours=8, budget=9) | {"startRay": False}, "bounds nothing"),
    ("lambdaCloud.headNodeName", _rent(headNodeName="a head"), "letters, digits and . _ -"),
    ("startRay", {"hosts": [ONE, TWO | {"user": "me"}], "startRay": False}, "they have me, ubuntu"),
    ("startRay", {"hosts": [ONE | {"port": 2222}], "startRay": False}, "at port 22 only"),
    ("workers", HOSTS | {"workers": 3}, "each of the 2 hosts has one worker"),
    ("workers", _rent(instances=4) | {"workers": 3}, "each of the 4 hosts has one worker"),
    ("objectStore", HOSTS | {"objectStore": "directory"}, "the other 1 machine(s) cannot"),
    # Containers.
    ("hosts", HOSTS | {"runtime": "docker"}, "have no network in common"),
    ("lambdaCloud", _rent(instances=2) | {"runtime": "docker"}, "have no network in common"),
    ("dataset", HOSTS | {"dataset": {"public": True}}, "the nodes are on others"),
    ("dataset", _rent() | {"dataset": {"generate": True}}, "the nodes are on others"),
    ("accelerator", HOSTS | {"runtime": "process", "accelerator": "nvidia"}, "docker only"),
    ("images", _rent() | {"runtime": "process", "images": {"ray": "a:1"}}, "docker only"),
    ("publishAddress", _rent() | PROCESS | {"publishAddress": "192.0.2.7"}, "docker only"),
    # The hosts' firewall is their owner's.
    ("allowedCidrs", HOSTS | PROCESS | CIDRS, "docker only"),
    ("allowedCidrs", {"hosts": [ONE], "runtime": "docker"} | CIDRS, "the containers are on hosts"),
    # Rented machines are on the internet: the networks that they let in have no default.
    ("allowedCidrs", {"lambdaCloud": RENTED}, "must be set with lambdaCloud"),  # F33
    ("allowedCidrs", _rent() | {"allowedCidrs": []}, "or to [0.0.0.0/0] for everybody"),  # F33
    ("allowedCidrs[0]", _rent() | {"allowedCidrs": ["0.0.0.0/1"]}, "not for everybody"),  # F33
]
BAD += [("hosts[0].address", _host(address=text), "a host name or an IP") for text in INJECTIONS]
BAD += [("hosts[0].user", _host(user=text), "a user's name") for text in INJECTIONS]
BAD += [("hosts[0].privateAddress", _host(privateAddress=text), "reach") for text in INJECTIONS]
BAD += [("hosts[0].hostKey", _host(hostKey=text), "public host key") for text in INJECTIONS]
BAD += [
    ("lambdaCloud.candidates[0].type", {"lambdaCloud": {"candidates": [{"type": text}]}}, "name of")
    for text in INJECTIONS
]
BAD += [
    ("lambdaCloud.sshKeyName", _rent(sshKeyName=text), "at most 64 letters") for text in INJECTIONS
]
BAD += [
    ("pythonEnvironment", HOSTS | {"pythonEnvironment": f"/opt/{text}"}, "absolute path")
    for text in INJECTIONS
    if text not in ("x" * 10_000, "a/b", "-x")
]


@pytest.mark.parametrize(
    ("key", "changes", "bound"), BAD, ids=[f"{i}-{case[0]}" for i, case in enumerate(BAD)]
)
def test_a_bad_setting_is_named_once_with_bound_and_action(  # F2 F39
    settings, host, key, changes, bound
):
    is_named(key, bound, settings(**changes), host)


def test_all_faults_are_in_one_message(settings, host):  # F2
    changes = {
        "hosts": [
            {"address": "$(touch x)", "user": "root;x", "hostKey": "none", "port": 0},
            ONE | {"gpus": -1},
        ],
        "setupCommands": [""],
        "pythonEnvironment": "env",
        "drainSeconds": -1,
        "dashboardPort": 1,
        "worker": {"cpus": -1},
        "x": 1,
    }
    message = faults(settings(**changes), host, "lab")
    assert "11 faults" in message, message
    assert "Pulumi.lab.yaml" in message
    keys = [*(f"hosts[0].{key}" for key in ("address", "user", "hostKey", "port"))]
    keys += [
        "hosts[1].gpus",
        "setupCommands[0]",
        "pythonEnvironment",
        "drainSeconds",
        "dashboardPort",
    ]
    for key in (*keys, "worker.cpus", "x"):
        assert f"- {key} = " in message


def test_a_host_is_read_with_what_is_left_out(settings, host):
    full = {"port": 2222, "privateAddress": "10.0.0.5", "gpus": 2}
    parsed = config.parse(settings(hosts=[ONE, TWO | full]), host, "dev")
    found = [(each.port, each.private_address, each.gpus) for each in parsed.fleet.hosts]
    assert found == [(22, "192.0.2.4", None), (2222, "10.0.0.5", 2)]
    assert (parsed.runtime, parsed.on_hosts, parsed.workers) == ("process", 2, ())
    agents = [p.number for p in parsed.opened([services.RAY])][-3:]
    assert agents == [27365, 27366, 27367]  # the head's, and one for each host's worker


@pytest.mark.parametrize("address", ["2001:db8::4", "::1", "gpu1", "a.b-c.example", "10.0.0.1"])
def test_addresses_that_are_taken(settings, host, address):
    (found,) = config.parse(settings(**_host(address=address)), host, "dev").fleet.hosts
    assert found.address == address


def test_a_rented_machine_is_read_with_what_is_left_out(settings, host):
    types = [{"type": "gpu_1x_a10", "region": "us-east-1"}, {"type": "gpu_8x_a100"}]
    fields = {"instances": 3, "candidates": types, "gpuMemoryGib": 0, "ttlHours": 8}
    parsed = config.parse(settings(**{**_rent(), "lambdaCloud": fields}), host, "dev")
    assert parsed.on_hosts == 3
    assert [each.region for each in parsed.fleet.candidates] == ["us-east-1", ""]
    cloud = parsed.fleet
    assert (cloud.ssh_key_name, cloud.boot_timeout_minutes, cloud.budget) == ("trainyard", 30, 0)


def test_networks_of_rented_machines_need_no_address_of_this_one(settings, host):  # A21
    for runtime in ("auto", "process"):
        changes = _rent() | {"allowedCidrs": ["192.0.2.0/24"], "runtime": runtime}
        parsed = config.parse(settings(**changes), host, "dev")
        assert (parsed.runtime, parsed.allowed_cidrs) == ("process", ("192.0.2.0/24",))
        assert parsed.publish_address == ""


def test_everybody_may_log_in_where_it_is_written_out(settings, host):  # F33
    parsed = config.parse(settings(**_rent() | {"allowedCidrs": ["0.0.0.0/0"]}), host, "dev")
    assert parsed.allowed_cidrs == ("0.0.0.0/0",)


@pytest.mark.parametrize(
    ("address", "told"),
    [("198.51.100.9", r"\[198.51.100.9/32\] is this machine's"), ("", r"\[198.51.100.7/32\]")],
)
def test_the_question_of_who_may_log_in_says_what_to_answer(  # F33
    settings, host, monkeypatch, address, told
):
    monkeypatch.setattr("infra.machines.local.public_address", lambda: address)
    with pytest.raises(pulumi.RunError, match=f"that you come from, .*{told}"):
        config.parse(settings(lambdaCloud=RENTED), host, "dev")


def test_a_worker_of_a_host_has_what_the_host_has(settings, host):
    changes = _host() | {"worker": {"memoryMib": 4096, "resources": {"tpu": 4}}}
    parsed = config.parse(settings(**changes), host, "dev")
    worker = node_settings.worker(parsed.worker, 32, 65536, 2)
    assert (worker.cpus, worker.gpus, worker.memory_mib) == (32, 2, 4096)
    assert (worker.resources, worker.group) == ({"tpu": 4}, "")
    # Sockets of a worker must fit wherever its stack is.
    assert len(str(config.parse(settings(**_host()), host, "x" * 80).state_dir)) <= 25


def test_folders_on_hosts_are_the_same_from_every_machine(settings, host, monkeypatch, tmp_path):
    def folders() -> tuple[Path, Path]:
        parsed = config.parse(settings(**HOSTS), host, "lab")
        return parsed.state_dir, parsed.data_dir

    before = folders()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert folders() == before
    assert str(before[1]) == "~/.local/share/trainyard/lab"


def test_the_key_file_may_be_named_from_home(settings, host, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/me")
    changes = HOSTS | {"sshKeyFile": "~/.ssh/id_ed25519"}
    parsed = config.parse(settings(**changes), host, "dev")
    assert parsed.ssh_key_file == Path("/srv/me/.ssh/id_ed25519")
    assert config.parse(settings(**HOSTS), host, "dev").ssh_key_file is None


# Values that are nearly right, so that whole lists of hosts are accepted now and then.
TEXTS = st.sampled_from(["192.0.2.4", "gpu2", "root", "/opt/env", "a;b", "::1", KEY]) | st.text()
NUMBERS = st.integers(-1, 70) | st.floats(allow_nan=True) | st.booleans() | st.none()
HOST = st.fixed_dictionaries(
    {"address": TEXTS, "user": st.just("root") | TEXTS, "hostKey": st.just(KEY) | TEXTS},
    optional={"port": NUMBERS, "privateAddress": TEXTS, "gpus": NUMBERS, "x": NUMBERS},
)
CLOUD = st.dictionaries(
    st.sampled_from(tuple(LambdaCloud.declared())),
    NUMBERS
    | TEXTS
    | st.lists(st.dictionaries(st.sampled_from(["type", "region"]), TEXTS), max_size=2)
    | st.dictionaries(TEXTS, TEXTS, max_size=2),
)


@given(hosts=st.lists(HOST, max_size=3), cloud=CLOUD)
@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_accepted_can_be_put_on_a_command_line(settings, hosts, cloud):  # F39
    raw = settings(hosts=json.dumps(hosts), lambdaCloud=json.dumps(cloud))
    plain = re.compile(r"[\w.:@/-]*", re.ASCII)
    for changes in ({"lambdaCloud": "{}"}, {"hosts": "[]", "allowedCidrs": '["192.0.2.0/24"]'}):
        try:
            fleet = config.parse(raw | changes, LocalHost(cpus=8, memory_mib=32768), "dev").fleet
        except pulumi.RunError:
            continue
        for machine in fleet.hosts if isinstance(fleet, Hosts) else ():
            assert plain.fullmatch(machine.address + machine.user + machine.private_address)
            assert not machine.address.startswith("-")
            assert not machine.user.startswith("-")
            assert 1 <= machine.port <= 65535
        if isinstance(fleet, LambdaCloud):
            texts = [fleet.ssh_key_name, fleet.head_node_name]
            texts += [*fleet.file_systems, *fleet.file_systems.values()]
            texts += [each.type + each.region for each in fleet.candidates]
            assert plain.fullmatch("".join(texts))
