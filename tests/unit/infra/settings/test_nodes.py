"""Groups of workers that differ: what each worker offers, and what is refused."""

from typing import Any

import pytest

from cluster import services
from cluster.ray_cluster import NODE_SWITCH_PORT
from cluster.ray_node import Growth
from infra.machines.local import LocalHost
from infra.settings import config
from tests.unit.infra.conftest import faults

HOST = LocalHost(cpus=8, memory_mib=16_000)
GROUPS = [
    {"name": "cpu", "count": 2, "cpus": 3},
    {"name": "tpu", "cpus": 1, "memoryMib": 2000, "resources": {"TPU": 4}},
]

ONE = {
    "address": "192.0.2.1",
    "user": "ada",
    "hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIRHN5nX0Ae8H3jYg5jg1c3T4nNNkWmb4eX9rbw5tqUG",
}


def test_each_group_has_workers_of_its_own(settings):
    first, second, third = config.parse(settings(nodeGroups=GROUPS), HOST, "dev").workers
    assert first == second
    assert (first.group, first.cpus, first.resources) == ("cpu", 3, {})
    assert (third.group, third.cpus, third.resources) == ("tpu", 1, {"TPU": 4})
    # Unset fields are a share of the machine for each of the three.
    assert first.memory_mib == int(16_000 * 0.6 / 3)
    assert third.memory_mib == 2000
    assert (first.threads, third.threads) == (2, None)


def test_a_group_that_grows_has_all_its_nodes_declared(settings):
    groups = [
        {"name": "cpu", "min": 1, "max": 3, "cpus": 2, "idleMinutes": 0.5},
        {"name": "tpu", "cpus": 1},
    ]
    found = config.parse(settings(nodeGroups=groups), HOST, "dev")
    assert [node.group for node in found.workers] == ["cpu", "cpu", "cpu", "tpu"]
    assert found.workers[0].growth == Growth(least=1, idle_seconds=30)
    assert found.workers[3].growth is None
    assert found.runtime == "process"  # nothing starts and ends containers on demand


def test_a_group_of_hosts_grows_up_to_their_number(settings):
    groups = [{"name": "a", "min": 1, "idleMinutes": 2}, {"name": "b"}]
    hosts = [
        ONE | {"address": f"192.0.2.{index}", "group": group} for index, group in enumerate("aaab")
    ]
    found = config.parse(settings(nodeGroups=groups, hosts=hosts), HOST, "dev")
    (grown,) = found.growing
    assert (grown.name, grown.count, grown.growth) == ("a", 3, Growth(least=1, idle_seconds=120))
    assert NODE_SWITCH_PORT in {port.setting for port in found.opened([services.RAY])}
    # No other stack has the means of the head to wake workers.
    for changes in ({"nodeGroups": [{"name": "a", "max": 2}]}, {"hosts": [ONE]}):
        opened = config.parse(settings(**changes), HOST, "dev").opened([services.RAY])
        assert NODE_SWITCH_PORT not in {port.setting for port in opened}


def test_a_group_without_devices_is_beside_one_with_them(settings):
    groups = [{"name": "cpu", "gpus": 0}, {"name": "gpu", "count": 2}]
    raw = settings(nodeGroups=groups, runtime="docker", accelerator="nvidia")
    assert [node.gpus for node in config.parse(raw, HOST, "dev").workers] == [0, 1, 1]


def _a(**fields: Any) -> dict[str, Any]:
    return {"nodeGroups": [{"name": "a"} | fields]}


def _groups(**fields: Any) -> dict[str, Any]:
    return {"nodeGroups": [{"name": name} | fields for name in "ab"]}


ON_A = {"hosts": [ONE | {"group": "a"}]}
ON_TPU = {"nodeGroups": GROUPS, "hosts": [ONE | {"group": "tpu"}]}
RENT = {"lambdaCloud": {"gpus": 1}}
OF_HOSTS = "must not be set: the group is of the hosts that name it"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"nodeGroups": ["cpu"]}, "nodeGroups[0] = 'cpu': must be an object"),
    ({"nodeGroups": [{"cpus": 1}]}, "nodeGroups[0].name = 'null': must be 1 to 32 lowercase"),
    (_a(name="a b"), "nodeGroups[0].name = 'a b': must be 1 to 32"),
    (_a(count=0), "nodeGroups[0].count = '0': must be a whole"),
    (_a(min=1), "nodeGroups[0].max = '0': must be a whole"),
    (_a(max=65), "nodeGroups[0].max = '65': must be a whole"),
    (_a(min=2, max=2), "min = '2': must be a whole number from 0 to 1, below max; lower min, or"),
    (_a(min=-1, max=2), "nodeGroups[0].min = '-1': must"),
    (_a(max=2, count=2), "count = '2': is for a group of one size, and min or max is set"),
    (_a(max=2, idleMinutes=0), "idleMinutes = '0': must be a number of minutes above 0, at most"),
    (_a(idleMinutes=5), "nodeGroups[0].max = '0': must be a whole number from 1"),
    (_groups(max=40), "nodeGroups = '80 workers': must have 64 workers at most"),
    (_groups(count=40), "nodeGroups = '80 workers': must have 64 workers at most"),
    (_a(max=2) | {"runtime": "docker"}, "'a group with max': grows only where nodes are proc"),
    (_a(cpu=1), "nodeGroups[0].cpu = '1': no such setting"),
    ({"nodeGroups": [{"name": "a"}, {"name": "a"}]}, "nodeGroups[1].name = 'a': is the name"),
    ({"nodeGroups": GROUPS, "workers": 3}, "workers = '3': is for workers that are alike"),
    ({"nodeGroups": GROUPS, "worker": {"cpus": 1}}, "worker = '{\"cpus\": 1}': is for workers"),
    (ON_TPU, f"nodeGroups[0].count = '2': {OF_HOSTS}"),
    (_a(max=1) | ON_A, f"nodeGroups[0].max = '1': {OF_HOSTS}"),
    (_a(min=1) | ON_A, "must be a whole number from 0 to 0, below its 1 hosts; lower"),
    (_a(idleMinutes=-1) | ON_A, "idleMinutes = '-1': must be a number of minutes above 0"),
    (_a(min=0) | ON_A | {"nodeSwitchPort": 8265}, "nodeSwitchPort = '8265': must differ from dash"),
    (ON_TPU, "nodeGroups = 'cpu': is not the group of any host; name it as the group of one"),
    (_a() | {"hosts": [ONE]}, "group = '': must be one of nodeGroups: a; name one, or remove node"),
    (ON_A, "hosts[0].group = 'a': needs nodeGroups; remove it, or set these"),
    ({"hosts": [ONE | {"group": "a b"}]}, "hosts[0].group = 'a b': must be the name of a group"),
    (_a() | ON_A | {"startRay": False}, "'false': gives all nodes the same, and nodeGroups is set"),
    (_a() | RENT, "nodeGroups.a = '1': needs max: rented machines that are always there are its"),
    (_groups(max=1) | RENT, "nodeGroups = 'a, b': must be one group: all instances of a stack are"),
    (
        _a(max=64) | RENT,
        "nodeGroups = '65 machines': must be 64 at most, lambdaCloud.instances and",
    ),
    (
        _a(gpus=2) | {"runtime": "docker", "accelerator": "nvidia"},
        "nodeGroups.a.gpus = '2': must be 1 with accelerator",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_a_bad_group_is_named_with_value_bound_and_action(settings, changes, said):  # F2
    (line,) = (line for line in faults(settings(**changes), HOST).splitlines() if said in line)
    assert "; " in line, "no next action"


def test_an_accelerator_that_is_none_is_the_only_fault(settings):  # F2
    assert "have 1 fault (" in faults(settings(accelerator="tpu", head={"gpus": 1}), HOST)
