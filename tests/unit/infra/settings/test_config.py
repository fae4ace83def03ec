"""Settings: defaults, and every kind of bad value in one message."""

import contextvars
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pulumi.runtime import set_all_config

from cluster import services
from cluster.ray_cluster import NODE_SWITCH_PORT
from infra.machines.local import LocalHost
from infra.places.lambda_cloud.settings import Candidate, LambdaCloud
from infra.places.ssh.settings import SshHost
from infra.settings import config
from infra.settings import containers as container_settings
from infra.settings import nodes as node_settings
from tests.unit.infra.conftest import faults, is_named

ROOT = Path(__file__).resolve().parents[4]
# All services of one stack: the stores share their ports.
ONE_STORE = [each for each in services.ALL if each.program != "minio"]

HOST = {"address": "192.0.2.4", "user": "ubuntu", "hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"}
PUBLISHED = {"allowedCidrs": ["192.0.2.0/24"], "publishAddress": "192.0.2.7"}
REPLICA = {
    "to": "s3://results",
    "endpoint": "https://s3.example",
    "accessKey": "canary-a",
    "secretKey": "canary-b",
}
IDLE = {"idleEnd": {"minutes": 30}}
RENT = {"lambdaCloud": {"gpus": 1}, "allowedCidrs": ["192.0.2.0/24"]}
THERE = {"hosts": [HOST], "runtime": "docker"}


def _copy(**fields: Any) -> dict[str, Any]:
    return {"replicate": fields}


def _groups(users: Any, *quotas: str) -> dict[str, Any]:
    return {"queueRules": {"groups": {"lab": users}, "quotas": {key: {} for key in quotas}}}


def _volume(runtime: str = "docker", **fields: Any) -> dict[str, Any]:
    return {"runtime": runtime, "volumes": [{"name": "mine", "mount": "/data"} | fields]}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("workers", {"workers": 0}, "from 1 to 64"),
    ("workers", {"workers": 65}, "from 1 to 64"),
    ("idleEnd", IDLE, "needs an end, and nodes that the stack starts"),
    ("idleEnd", IDLE | RENT, "set a reservation or lambdaCloud.ttlHours"),
    ("idleEnd.minutes", {"idleEnd": {"cpuPercent": 50}}, "from 1 to 9999"),
    ("idleEnd.gpuPercent", {"idleEnd": {"minutes": 9, "gpuPercent": 5}}, "without cpuPercent"),
    ("idleEnd.gpuPercent", {"idleEnd": {"minutes": 9, "gpuPercent": -1}}, "from 0 to 99"),
    ("idleEndCpuPercent", {"idleEndCpuPercent": 9}, "did you mean idleEnd.cpuPercent"),
    ("rotated.ray-tokn", {"rotated": {"ray-tokn": 1}}, "did you mean ray-token"),  # F43
    ("rotated.ray-token", {"rotated": {"ray-token": 0}}, "from 1 to 1000000"),
    ("rotated.ray-token", {"rotated": {"ray-token": 1.5}}, "from 1 to 1000000"),
    ("owner", {"owner": "a\0b"}, "at most 100 characters that print"),  # F67
    ("owner", {"owner": "a\u202eb"}, "at most 100 characters that print"),
    ("owner", {"owner": "a" * 101}, "at most 100 characters that print"),
    ("drainSeconds", {"drainSeconds": 3601}, "from 0 to 3600"),
    ("storeFrom", {"storeFrom": "a/b"}, "must be the name of a stack"),
    ("storeFrom", {"storeFrom": "dev"}, "is this stack"),
    ("storeFrom", {"storeFrom": "prod", "runtime": "docker"}, "runtime process only"),
    ("storeFrom", {"storeFrom": "prod", "hosts": [HOST]}, "the nodes are on others"),
    ("storeFrom", {"storeFrom": "prod", "objectStore": "minio"}, "are two stores for one stack"),
    # A27
    ("hosts", THERE | {"hosts": [HOST, HOST | {"address": "192.0.2.5"}]}, "leave one machine"),
    ("startRay", THERE | {"startRay": False}, "is for processes on"),
    ("publishAddress", THERE | PUBLISHED, "the containers are on hosts; remove it"),
    ("accelerator", THERE | {"accelerator": "amd"}, "must be none or nvidia with hosts"),
    ("dataset.archive", THERE | {"dataset": {"archive": "/food11.zip"}}, "set dataset.url"),
    ("replicateTo", {"replicateTo": "/mnt/copy"}, "did you mean replicate.to"),
    ("replicate.to", _copy(to="results"), "absolute folder"),
    ("replicate.to", _copy(to="/srv/../etc"), "absolute folder"),
    ("replicate.to", _copy(to="s3://results"), "lacks replicate.endpoint and replicate.accessKey"),
    ("replicate.to", _copy(**REPLICA | {"secretKey": ""}), "lacks replicate.secretKey"),
    ("replicate.to", _copy(to="/srv/d/copy") | {"dataDir": "/srv/d"}, "is in dataDir"),
    ("replicate", _copy(to="/mnt/copy") | {"runtime": "docker"}, "runtime process only"),
    ("queueRules.halfLifeDays", {"queueRules": {"halfLifeDays": 0}}, "from 0.01 to 365"),
    ("queueRules.quotas.eva.gpus", {"queueRules": {"quotas": {"eva": {"gpus": -1}}}}, "from 0 to"),
    (
        "queueRules.quotas",
        {"queueRules": {"quotas": {"@lab": {}}}},
        "is not a group; queueRules.groups has none",
    ),
    (
        "queueRules.quotas",
        _groups(["eva"], "@lap"),
        "'@lap': is not a group; queueRules.groups has @lab",
    ),
    ("queueRules.quotas", _groups(["eva"], ""), "is not a name of a user or group"),
    ("queueRules.lowUse.percent", {"queueRules": {"lowUse": {"percent": 101}}}, "from 0 to 100"),
    (
        "queueRules.lowUse.stopMinutes",
        {"queueRules": {"lowUse": {"minutes": 60, "stopMinutes": 60}}},
        "must be more than minutes (60)",
    ),
    ("queueRules.groups.lab", _groups(["@all"]), "only quotas have @GROUP"),
    ("queueRules.groups.lab", _groups("eva"), "an array of names"),
    ("queueRules.groups", {"queueRules": {"groups": ["eva"]}}, "users by group"),
    ("queueDatabase", {"queueDatabase": "mysql://h/n"}, "URL of SQLAlchemy for PostgreSQL"),
    ("replicate.endpoint", _copy(**REPLICA | {"endpoint": "s3.example"}), "must be the http"),
    ("replicate.secretKey", _copy(**REPLICA | {"to": "/mnt/copy"}), "is of a bucket"),
    ("worker.cpu", {"worker": {"cpu": 2}}, "did you mean cpus"),
    ("worker.cpus", {"worker": {"cpus": -1}}, "from 0"),
    ("worker.gpus", {"worker": {"gpus": 10**9}}, "to 1000000"),
    ("worker.memoryMib", {"worker": {"memoryMib": 0}}, "MiB from 1"),
    ("worker.objectStoreMib", {"worker": {"objectStoreMib": 10}}, "MiB from 80"),
    ("worker.resources", {"worker": {"resources": ["tpu"]}}, "amounts by name"),
    ("worker.resources.CPU", {"worker": {"resources": {"CPU": 1}}}, "a name other than"),
    ("worker.resources.tpu", {"worker": {"resources": {"tpu": "x"}}}, "must be a number"),
    ("objectStore", {"objectStore": "s3"}, "auto, versitygw, minio, directory"),
    ("dataDir", {"dataDir": "data"}, "absolute"),
    ("dataDir", {"dataDir": "/srv/a b"}, "is part of a URL"),  # F62
    ("dataDir", {"dataDir": "/srv/a%20b"}, "is part of a URL"),
    ("dataDir", {"dataDir": "/srv/a#b"}, "is part of a URL"),
    ("dataDir", {"dataDir": "/srv/é"}, "is part of a URL"),
    ("dataDir", {"dataDir": "/srv/" + "a" * 255}, "at most 255"),
    ("dataDir", {"dataDir": "/srv/../etc"}, "without '..'"),
    ("stateDir", {"stateDir": "/tmp/" + "x" * 40}, "at most 25 bytes"),
    ("stateDir", {"stateDir": "/tmp/a b"}, "letters, digits"),
    ("stateDir", {"stateDir": "/srv/ty", "dataDir": "/srv/ty/data"}, "destroy removes"),
    ("stateDir", {"stateDir": "/tmp"}, "is a folder of the system"),
    ("stateDir", {"stateDir": "/tmp", "dataDir": "/tmp/data"}, "is a folder of the system"),
    ("dataDir", {"dataDir": "/home/ada"}, "is a user's own folder"),
    ("dataDir", {"dataDir": str(Path.home())}, "absent or empty"),
    ("dataDir", {"dataDir": "/a\0b"}, "must be an absolute path"),
    ("dataDir", {"dataDir": str(ROOT)}, "is this checkout"),
    ("dataDir", {"dataDir": str(ROOT.parent)}, "absent or empty"),  # whatever else that is
    ("dataDir", {"hosts": [HOST], "dataDir": "/root"}, "is a folder of the system"),
    ("startTimeoutSeconds", {"startTimeoutSeconds": 1}, "from 5 to 3600"),
    ("dashboardPort", {"dashboardPort": 80}, "from 1024 to 65535"),
    ("dashboardPort", {"dashboardPort": 70000}, "from 1024 to 65535"),
    ("objectStorePort", {"objectStorePort": 6379}, "must differ from gcsPort"),
    ("agentPort", {"agentPort": 65534}, "must not pass 65535"),
    ("agentPort", {"agentPort": 8264}, "must not hold dashboardPort = 8265"),
    ("agentPort", {"agentPort": 65434, "portOffset": 100}, "set agentPort to 65433"),
    ("portOffset", {"portOffset": -1}, "from 0 to"),
    ("portOffset", {"portOffset": 40000}, "set it to 38170 at most"),
    ("wrokers", {"wrokers": 3}, "did you mean workers"),
    ("runtime", {"runtime": "podman"}, "auto, docker, process"),
    ("runtime", {"stateDir": "/tmp/ty", "containerPrefix": "a-"}, "no runtime can do it all"),
    ("stateDir", {"runtime": "docker", "stateDir": "/tmp/ty"}, "process only"),
    ("dataDir", {"runtime": "docker", "dataDir": "/srv/data"}, "process only"),
    ("objectStore", {"runtime": "docker", "objectStore": "directory"}, "process only"),
    ("containerPrefix", {"runtime": "process", "containerPrefix": "a-"}, "docker only"),
    ("allowedCidrs", {"runtime": "process", "allowedCidrs": ["10.0.0.0/8"]}, "docker only"),
    ("publishAddress", PUBLISHED | {"runtime": "process"}, "docker only"),
    ("accelerator", {"runtime": "process", "accelerator": "amd"}, "docker only"),
    ("containerLimits", {"runtime": "process", "containerLimits": {"minio": {}}}, "docker only"),
    ("images", {"runtime": "process", "images": {"ray": "a:1"}}, "docker only"),
    ("buildArgs", {"runtime": "process", "buildArgs": {"A": "b"}}, "docker only"),
    (
        "dataset.volume",
        {"runtime": "process", "dataset": {"generate": True, "volume": "v1"}},
        "is none of volumes: a Docker volume, and runtime = 'process'",
    ),
    ("tracking", {"tracking": "wandb"}, "none, mlflow"),
    ("trackingPort", {"trackingPort": 8265}, "must differ from dashboardPort"),
    ("servePort", {"servePort": 80}, "from 1024"),
    ("accelerator", {"accelerator": "gpu"}, "none, nvidia, amd"),
    ("worker.gpus", {"accelerator": "nvidia", "worker": {"gpus": 0.5}}, "whole number of devices"),
    ("worker.gpus", {"accelerator": "amd", "worker": {"gpus": 0}}, "1 or more"),
    ("worker.gpus", {"accelerator": "nvidia", "worker": {"gpus": 2}}, "one of NVIDIA's devices"),
    ("worker.gpus", {"accelerator": "amd", "worker": {"gpus": -1}}, "from 0"),
    ("worker.gpus", {"accelerator": "amd", "worker": '{"gpus": NaN}'}, "from 0"),
    ("head.gpus", {"accelerator": "nvidia", "head": {"gpus": 1}}, "for the workers"),
    ("containerPrefix", {"containerPrefix": "-lab"}, "after a letter or digit"),
    ("containerPrefix", {"containerPrefix": "lab/"}, "letters, digits"),
    ("containerPrefix", {"containerPrefix": "x" * 24}, "at most 23"),
    ("images.raay", {"images": {"raay": "a:1"}}, "did you mean ray"),
    ("images.ray", {"images": {"ray": 1}}, "image reference"),
    ("images.ray", {"images": {"ray": "Ray:1"}}, "image reference"),
    ("images.gateway", {"images": {"gateway": "haproxy"}}, "a tag or a digest"),
    ("buildArgs.base_image", {"buildArgs": {"base_image": "a:1"}}, "named in capitals"),
    ("buildArgs.BASE_IMAGE", {"buildArgs": {"BASE_IMAGE": 1}}, "text of one line"),
    ("buildArgs.BASE_IMAGE", {"buildArgs": {"BASE_IMAGE": "a\nb"}}, "text of one line"),
    ("buildArgs.PIP_TOKEN", {"buildArgs": {"PIP_TOKEN": "x"}}, "must not be a secret"),
    ("buildArgs.api_key", {"buildArgs": {"api_key": "x"}}, "must not be a secret"),
    ("buildArgs.INDEX", {"buildArgs": {"INDEX": "https://a:b@mirror"}}, "no user name"),
    ("containerLimits.ray-worker-0", {"containerLimits": {"ray-worker-0": {}}}, "mean ray-worker"),
    ("containerLimits.minio.cpus", {"containerLimits": {"minio": {"cpus": 1}}}, "memoryMib, proc"),
    ("containerLimits.minio.memoryMib", {"containerLimits": {"minio": {"memoryMib": 8}}}, "64"),
    ("grafanaPort", {"grafanaPort": 8265}, "must differ from dashboardPort"),
    ("notebookPort", {"notebookPort": 3000}, "must differ from grafanaPort"),
    ("notebookPort", {"notebookPort": 443}, "from 1024"),
    ("dataset", {"dataset": {"volume": "food11"}}, "one of public, generate, url, archive"),
    ("dataset", {"dataset": {"url": "https://x/y", "archive": "/y"}}, "one of public"),
    ("dataset", {"dataset": {"url": "https://x/y", "generate": True}}, "one of public"),
    ("dataset", {"dataset": {"public": True, "generate": True}}, "one of public"),
    ("dataset.generate", {"dataset": {"generate": "yes"}}, "must be true"),
    ("dataset.generate", {"dataset": {"generate": False}}, "leave generate out"),
    ("dataset.sha256", {"dataset": {"generate": True, "sha256": "ab" * 32}}, "of an archive"),
    ("dataset.uri", {"dataset": {"uri": "https://x/y"}}, "did you mean url"),
    ("dataset.sha256", {"dataset": {"url": "https://x/y"}}, "must be set with dataset.url"),  # F40
    ("dataset.url", {"dataset": {"url": 1, "sha256": "ab" * 32}}, "text of one line"),
    ("dataset.url", {"dataset": {"url": "ftp://x/y", "sha256": "ab" * 32}}, "http or https"),
    ("dataset.url", {"dataset": {"url": "https://", "sha256": "ab" * 32}}, "http or https"),
    ("dataset.url", {"dataset": {"url": "https://x:port/y", "sha256": "ab" * 32}}, "http or https"),
    ("dataset.url", {"dataset": {"url": "https://u:p@x/y", "sha256": "ab" * 32}}, "no user name"),
    ("dataset.archive", {"dataset": {"archive": "food11.zip"}}, "absolute"),
    ("dataset.sha256", {"dataset": {"archive": "/y", "sha256": "abc"}}, "64 hexadecimal"),
    ("dataset.volume", {"dataset": {"archive": "/y", "volume": "a/b"}}, "2 to 255 letters"),
    ("volumes[0]", _volume(), "must have one of path, nfs and claim; a bucket is read by the job"),
    ("volumes[0]", _volume(path="/", nfs="nas:/a"), "must have one of"),
    ("volumes[0].bucket", _volume(bucket="s3://a"), "remove it, or use one of name, path, nfs"),
    ("volumes[0].path", _volume(path="data"), "absolute"),
    ("volumes[0].nfs", _volume(nfs="nas"), "SERVER:/folder"),
    ("volumes[0].name", _volume(name="My", path="/"), "lowercase letters"),
    ("volumes[0].mount", {"volumes": [{"name": "nas", "nfs": "nas:/a"}]}, "with nfs or claim"),
    ("volumes[0].mount", _volume(path="/", mount="/usr/x"), "hides /usr, a folder of the system"),
    ("volumes[0].mount", _volume(path="/", mount="/var"), "hides /var/lib/trainyard"),
    ("volumes[0].mount", _volume(path="/", mount="/"), "hides /bin"),
    ("volumes[0]", _volume(path="/nowhere"), "is not a folder of this machine; make or mount it"),
    ("volumes[0]", _volume(claim="photos"), "is a claim of Kubernetes, and runtime ="),
    ("volumes[0]", _volume("process", nfs="nas:/a"), "mount it on each machine, and write its"),
    ("volumes[0]", _volume("process", path="/"), "processes mount nothing"),
    (
        "volumes[1]",
        {"volumes": [{"name": n, "nfs": "nas:/a", "mount": "/a"} for n in "ab"]},
        "the name or the mount of an earlier one",
    ),
    ("allowedCidrs", {"allowedCidrs": ["10.0.0.0/8"] * 65}, "at most 64"),
    ("allowedCidrs[0]", {"allowedCidrs": ["0.0.0.0/0"]}, "not for everybody"),  # F33
    ("allowedCidrs[0]", {"allowedCidrs": ["::/0"]}, "IPv4 network"),  # F33
    ("allowedCidrs[1]", {"allowedCidrs": ["10.0.0.0/8", "128.0.0.0/1"]}, "not for everybody"),
    ("allowedCidrs[0]", {"allowedCidrs": ["10.0.0.0/7"]}, "/8 or smaller"),
    ("allowedCidrs[0]", {"allowedCidrs": ["10.1.2.3/16"]}, "write 10.1.0.0/16"),
    ("allowedCidrs[0]", {"allowedCidrs": ["10.1.2.3"]}, "address/bits"),
    ("allowedCidrs[0]", {"allowedCidrs": ["10.1.0.0/33"]}, "address/bits"),
    ("allowedCidrs[0]", {"allowedCidrs": ["10.1.0.0/255.255.0.0"]}, "address/bits"),
    ("allowedCidrs[0]", {"allowedCidrs": [10]}, "address/bits"),
    ("publishAddress", {"allowedCidrs": ["10.0.0.0/8"]}, "must be set with allowedCidrs"),
    ("publishAddress", {"publishAddress": "10.1.2.3"}, "does nothing without allowedCidrs"),
    ("publishAddress", PUBLISHED | {"publishAddress": "0.0.0.0"}, "not 0.0.0.0"),  # F33
    ("publishAddress", PUBLISHED | {"publishAddress": "127.0.0.1"}, "not loopback"),
    ("publishAddress", PUBLISHED | {"publishAddress": "255.255.255.255"}, "IPv4 address"),
    ("publishAddress", PUBLISHED | {"publishAddress": "lab.example.org"}, "IPv4 address"),
]
SENSIBLE = [
    *("true", "false", "docker", "process", "nvidia", "amd", "directory", "192.0.2.7", "/srv/a"),
    *('["192.0.2.0/24"]', '{"gpus": 2}', '{"url": "https://host/a.zip"}', '{"ray": "a/b:1"}'),
    json.dumps([HOST]),
    json.dumps([HOST | {"privateAddress": "10.0.0.4"}, HOST | {"address": "gpu2.lab"}]),
    '{"instances": 3, "gpus": 1, "ttlHours": 2, "budget": 9.5, "fileSystems": {"a": "/mnt/a"}}',
    '{"candidates": [{"type": "gpu_1x_a10"}, {"type": "gpu_8x_a100", "region": "us-east-1"}]}',
    *("~/.ssh/id_ed25519", "~nobody-here/key", '["echo a"]', "/opt/conda", "somebody"),
]


def test_defaults_of_the_schema_are_valid_and_fit_the_machine(settings, host):
    parsed = config.parse(settings(), host, "dev")
    assert (parsed.on_hosts, parsed.fleet) == (0, None)
    assert [node.gpus for node in (parsed.head, *parsed.workers)] == [0, 0, 0]
    assert parsed.workers[0].cpus == host.cpus / 2
    assert parsed.head.cpus == 0
    everything = sum(node.memory_mib for node in (parsed.head, *parsed.workers))
    shared = sum(node.object_store_mib for node in (parsed.head, *parsed.workers))
    assert everything + shared < host.memory_mib


@pytest.mark.parametrize("cpus", [1, 2, 3, 64])
@pytest.mark.parametrize("workers", [1, 2, 64])
def test_every_worker_gets_a_cpu_on_any_machine(settings, cpus, workers):
    machine = LocalHost(cpus=cpus, memory_mib=2048)
    parsed = config.parse(settings(workers=workers), machine, "dev")
    assert all(node.cpus >= 1 and node.object_store_mib >= 80 for node in parsed.workers)


@pytest.mark.parametrize(("cpus", "threads"), [(4, None), (5, 4), (64, 4)])
def test_threads_are_bounded_where_cpus_are_only_counted(settings, host, cpus, threads):
    parsed = config.parse(settings(workers=2, worker={"cpus": cpus}), host, "dev")
    assert [node.threads for node in parsed.workers] == [threads] * 2  # a half of 8 cores each


@pytest.mark.parametrize(("key", "changes", "bound"), BAD)
def test_a_bad_setting_is_named_with_value_bound_and_action(  # F2
    settings, host, key, changes, bound
):
    is_named(key, bound, settings(**changes), host)


@pytest.mark.parametrize(
    ("wrong", "others"),
    [
        ({"runtime": "kubernets"}, {"kubernetes": {"context": "c"}}),
        ({"runtime": "podman"}, {"hosts": [HOST], "dataset": {"generate": True}}),
        ({"publishAddress": "x"}, {"allowedCidrs": ["192.0.2.0/24"]}),
        ({"accelerator": "gpu"}, {"runtime": "kubernetes", "worker": {"gpus": 1}}),
        ({"hosts": [{}]}, {"setupCommands": ["true"], "runtime": "process"}),
        ({"lambdaCloud": {"gpus": -1}}, {"idleEnd": {"minutes": 9}}),
        ({"reservation": {"start": "x"}}, {"lambdaCloud": {"gpus": 1, "budget": 1}}),
        ({"nodeGroups": [{}]}, {"hosts": [HOST | {"group": "a"}]}),
    ],
)
def test_the_default_in_place_of_a_wrong_value_is_not_judged(settings, host, wrong, others):
    right, more = (faults(settings(**each), host) for each in (wrong, wrong | others))
    added = {*more.splitlines()[1:]} - {*right.splitlines()}
    known = {"kubernetes.context", "images", "allowedCidrs"}  # they lack these as well
    assert not [line for line in added if not line.startswith(tuple(f"  - {k}" for k in known))]


def test_a_folder_that_no_url_can_have_stops_no_stack_without_it(  # F62
    settings, host, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/José")
    with pytest.raises(pulumi.RunError, match=r"dataDir = '/srv/José/.*or runtime to docker"):
        config.parse(settings(runtime="process"), host, "dev")
    config.parse(settings(runtime="docker"), host, "dev")


def test_a_setting_that_no_engine_passes_on_has_its_default(settings, host):
    assert config.parse({}, host, "dev") == config.parse(settings(), host, "dev")


def test_a_check_of_settings_that_are_right_is_made_next_to_faults(settings, host):
    raw = settings(workers=0, storeFrom="dev", servePort=8265, agentPort=1)
    named = [line.split(" = ")[0] for line in faults(raw, host).splitlines()[1:]]
    # What agentPort and the count of workers mean for other ports is checked once they are right.
    assert named == ["  - workers", "  - agentPort", "  - storeFrom"]


MODELS = (node_settings.Group, container_settings.Dataset, SshHost, LambdaCloud, Candidate)
FIELDS = [*(key for model in MODELS for key in model.declared()), "ray", "BASE_IMAGE", "x"]
CROSS_CHECKED = (
    *("stateDir", "agentPort", "runtime", "publishAddress"),
    "allowedCidrs",
)
# Settings that conflict with other machines, or need them.
CROSS_CHECKED += ("hosts", "workers", "objectStore", "sshKeyFile", "setupCommands")
CROSS_CHECKED += ("pythonEnvironment", "environmentFile", "startRay")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(data=st.data())
@hypothesis_settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_settings_are_accepted_whole_or_refused_by_name(settings, host, data):  # F2
    raw = settings()
    keys = data.draw(st.lists(st.sampled_from(sorted(raw)), min_size=1, max_size=5, unique=True))
    for key in keys:
        raw[key] = data.draw(
            st.text(max_size=20) | JSON.map(json.dumps) | st.sampled_from(SENSIBLE)
        )
    try:
        parsed = config.parse(raw, host, "dev")
    except pulumi.RunError as error:
        faults = [line for line in str(error).splitlines() if line.startswith("  - ")]
        assert faults
        changed = (*keys, *CROSS_CHECKED, *(key for key in raw if key.endswith("Port")))
        assert all(line.startswith(tuple(f"  - {key}" for key in changed)) for line in faults)
    else:
        numbers = [port.number for port in parsed.opened(ONE_STORE)]
        assert len(numbers) == len(set(numbers))
        assert all(1024 <= number <= 65535 for number in numbers)
        assert len(str(parsed.state_dir)) <= config.STATE_DIR_LIMIT
        assert 1 <= (parsed.on_hosts or len(parsed.workers)) <= 64
        assert bool(parsed.on_hosts) != bool(parsed.workers)
        rented = isinstance(parsed.fleet, LambdaCloud)
        assert rented or bool(parsed.allowed_cidrs) == bool(parsed.publish_address)
        public = parsed.allowed_cidrs and not rented
        if public or parsed.accelerator != "none":
            assert parsed.runtime == "docker"
        if parsed.on_hosts:
            assert parsed.runtime == "process" or (parsed.runtime, parsed.on_hosts) == ("docker", 1)
            assert len(numbers) >= parsed.on_hosts + 1
        else:
            assert parsed.start_ray
            assert parsed.ssh_key_file is None
            assert parsed.setup_commands == ()
            assert parsed.python_environment == ""
        if rented:
            cloud = parsed.fleet
            assert bool(cloud.candidates) != bool(cloud.gpus)
            assert cloud.ttl_hours or parsed.reservation or not cloud.budget
            amounts = (cloud.max_hourly_cost, cloud.budget, cloud.ttl_hours)
            assert all(0 <= amount <= 1e7 for amount in amounts)
        if parsed.accelerator != "none":
            assert all(node.gpus >= 1 and node.gpus % 1 == 0 for node in parsed.workers)
        if parsed.accelerator == "nvidia":
            assert all(node.gpus == 1 for node in parsed.workers)


@pytest.mark.parametrize(
    "socket",
    ["/ray-worker-63/ray/{}/sockets/plasma_store", "/ray-head/ray/{}/sockets/dash_MetricsHead"],
)
def test_rays_longest_sockets_fit_below_the_longest_state_dir(socket):
    session = "session_2026-11-20_18-33-23_123456_4194304"
    assert config.STATE_DIR_LIMIT + len(socket.format(session)) <= 107


def test_reads_what_pulumi_passes_on(monkeypatch, settings, host):
    raw = {f"project:{key}": value for key, value in settings(workers=3).items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**raw, "aws:region": "x", "project:typo": "1"}))
    with pytest.raises(pulumi.RunError, match="typo"):
        config.read(host)
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(raw))
    assert len(config.read(host).workers) == 3


def _read(raw: dict[str, str], host: LocalHost, *secret_keys: str) -> config.Settings:
    def read() -> config.Settings:
        set_all_config(raw, [*secret_keys])
        return config.read(host)

    return contextvars.copy_context().run(read)


def test_an_api_key_in_the_clear_is_refused_and_not_shown(settings, host):  # F35
    changes = RENT | {"lambdaApiKey": "canary"}
    raw = {f"project:{key}": value for key, value in settings(**changes).items()}

    with pytest.raises(pulumi.RunError, match=r"Make a new key.*--secret lambdaApiKey") as raised:
        _read(raw, host)
    assert "canary" not in str(raised.value)
    assert "canary" not in repr(_read(raw, host, "project:lambdaApiKey"))


@pytest.mark.parametrize(
    ("key", "changes", "named"),
    [
        ("alertWebhookUrl", {"alertWebhookUrl": "https://chat.example/canary"}, "alertWebhookUrl"),
        ("replicate", _copy(**REPLICA | {"accessKey": ""}), "--path replicate.secretKey"),
    ],
)
def test_a_secret_in_the_clear_is_told_and_not_shown(  # F35
    settings, host, monkeypatch, warnings, key, changes, named
):
    monkeypatch.setattr(config, "parse", lambda *_: SimpleNamespace(reservation=None))
    raw = {f"project:{k}": value for k, value in settings(**changes).items()}

    _read(raw, host)
    (warning,) = warnings
    assert f"train config set --secret {named}" in warning
    assert "canary" not in warning
    _read(raw, host, f"project:{key}")
    assert len(warnings) == 1


def test_the_schema_types_its_keys_and_describes_them(schema):
    kinds = {"integer": int, "string": str, "boolean": bool, "object": dict, "array": list}
    for key, entry in schema.items():
        assert isinstance(entry["default"], kinds[entry["type"]]), key
        assert entry["type"] != "array" or entry["items"]["type"] in kinds, key
        assert entry["description"], key


@pytest.mark.parametrize(
    ("changes", "runtime"),
    [
        ({}, "auto"),
        ({"runtime": "docker"}, "docker"),
        ({"stateDir": "/tmp/ty"}, "process"),
        ({"objectStore": "directory"}, "process"),
        ({"containerPrefix": "a-"}, "docker"),
        ({"accelerator": "nvidia"}, "docker"),
        (PUBLISHED, "docker"),
    ],
)
def test_auto_takes_the_only_runtime_that_can_do_what_is_asked(settings, host, changes, runtime):
    assert config.parse(settings(**changes), host, "dev").runtime == runtime


def test_a_webhook_is_never_shown(settings, host):  # F35
    with pytest.raises(pulumi.RunError, match="must be an http or https URL") as caught:
        config.parse(settings(alertWebhookUrl="ftp://chat.example/canary"), host, "dev")
    assert "canary" not in str(caught.value)


def test_every_port_setting_belongs_to_a_service(settings, schema, host):
    parsed = config.parse(settings(), host, "dev")
    everything = parsed.opened(ONE_STORE)
    # The head wakes nodes on other machines only (test_node_settings.py).
    known = {k for k in schema if k.endswith("Port")} - {NODE_SWITCH_PORT}
    assert {port.setting for port in everything} == known
    least = {port.setting for port in parsed.opened([services.RAY])}
    gone = {"queuePort", "objectStorePort", "objectStoreConsolePort", "prometheusPort"}
    gone |= {"alertmanagerPort", "grafanaPort", "notebookPort", "pagePort", "trackingPort"}
    gone |= {"idleEndPort"}
    assert least == {port.setting for port in everything} - gone - {"replicaPort"}
    # Inside the cluster's network nobody has to log in everywhere: its ports stay there.  # F33
    published = {port.setting for port in everything if port.published}
    assert published == gone | {"dashboardPort", "servePort"}


def test_a_dataset_names_its_source_and_volume(settings, host):
    given = {"url": "https://host/food11.zip", "sha256": "AB" * 32}
    parsed = config.parse(settings(dataset=given), host, "dev").dataset
    assert parsed is not None
    assert (parsed.sha256, parsed.archive, parsed.volume) == ("ab" * 32, "", "food11")


@pytest.mark.parametrize(("name", "runtime"), [("mine", "auto"), ("other", "docker")])
def test_a_datasets_own_volume_is_dockers(settings, host, name, runtime):
    source = {"generate": True, "volume": name}
    given = settings(dataset=source, volumes=[{"name": "mine", "path": "/srv"}])
    assert config.parse(given, host, "dev").runtime == runtime


@pytest.mark.parametrize(
    "changes",
    [
        {"buildArgs": {"PIP_TOKEN": "canary"}},
        {"buildArgs": {"api_key": "canary"}},
        {"buildArgs": {"INDEX": "https://user:canary@mirror/simple"}},
        {"dataset": {"url": "https://user:canary@host/a.zip"}},
        {"dataset": {"password": "canary", "url": "https://host/a.zip"}},
        {"images": {"ray": "https://user:canary@host/ray:1"}},
        {"grafanaPassword": "canary"},
        {"buildArgs": "PIP_TOKEN=canary"},
        {"workers": '{"password": "canary"}'},
        {"runtime": "process", "buildArgs": {"INDEX": "canary"}},
        {"hosts": [HOST | {"hostKey": "-----BEGIN OPENSSH PRIVATE KEY----- canary"}]},
        {"hosts": [HOST | {"password": "canary"}]},
        {"hosts": [HOST], "sshKeyFile": "-----BEGIN OPENSSH PRIVATE KEY----- canary"},
        {"lambdaCloud": {"gpus": 1, "apiKey": "canary"}},
        {"lambdaCloud": {"apiKey": "canary"}},
        {"lambdaCloud": '{"gpus": 1, "lambdaApiKey": "canary"'},
        {"lambdaApiKye": "canary", "workers": 0},
        {"lambdaApiKey": "canary", "workers": 0},
    ],
)
def test_a_value_that_may_be_a_secret_is_not_shown(settings, host, changes):  # F35
    assert "canary" not in faults(settings(**changes), host)


def test_an_offset_moves_all_ports(settings, host):
    before, after = (
        config.parse(settings(servePort=8001, **more), host, "dev")
        for more in ({}, {"portOffset": 100})
    )
    assert len(before.ports) > 10
    assert after.ports == {key: port + 100 for key, port in before.ports.items()}
    assert after.ports["servePort"] == 8101
    opened = [{port.number for port in each.opened(services.ALL)} for each in (before, after)]
    assert opened[1] == {number + 100 for number in opened[0]}
