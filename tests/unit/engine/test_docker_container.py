"""What Docker is asked for, and what is recorded of what it answers."""

import pytest

from engine.docker_container import outputs_of, request_of
from engine.docker_provider import DockerProvider
from engine.providers import Live

INPUTS = {
    "name": "web",
    "image": "debian",
    "command": ["sleep", "inf"],
    "devices": [{"hostPath": "/dev/null", "permissions": "rwm"}],
    "gpus": "device=1",
    "healthcheck": {
        "tests": ["CMD", "true"],
        "interval": "1m30s",
        "timeout": "0s",
        "startPeriod": "0s",
        "startInterval": "0s",
        "retries": 3,
    },
    "hosts": [{"host": "x.test", "ip": "::1"}],
    "labels": [{"label": "a", "value": "b", "__defaults": []}],
    "memory": 2,
    "memorySwap": -1,
    "mustRun": True,
    "networkMode": "bridge",
    "ports": [{"internal": 80, "external": 8080, "ip": "127.0.0.1", "protocol": "tcp"}],
    "restart": "no",
    "volumes": [
        {"volumeName": "vol", "containerPath": "/data"},
        {"hostPath": "/srv", "containerPath": "/srv", "readOnly": True},
    ],
}


def _inspected(**state):
    """What Docker tells of a container of INPUTS (shortened)."""
    request = request_of(INPUTS)
    host = request.pop("HostConfig")
    network = dict.fromkeys(
        ("IPAddress", "Gateway", "GlobalIPv6Address", "IPv6Gateway", "MacAddress"), ""
    ) | {"IPPrefixLen": 16, "GlobalIPv6PrefixLen": 0}
    return {
        "Id": "abc",
        "Name": "/web",
        "Image": "sha256:1",
        "Platform": "linux",
        "Config": request | {"Hostname": "abc", "Entrypoint": None, "User": ""},
        "HostConfig": host
        | {"Runtime": "runc", "IpcMode": "private", "CapAdd": None, "CapDrop": None},
        "State": {"Running": True, "Status": "running", "ExitCode": 0} | state,
        "NetworkSettings": {
            "Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}], "81/tcp": None},
            "Networks": {"bridge": network},
        },
    }


def test_the_request():
    request = request_of(INPUTS)
    host = request["HostConfig"]
    assert request["Cmd"] == ["sleep", "inf"]
    assert request["Labels"] == {"a": "b"}
    assert request["Healthcheck"]["Interval"] == 90 * 10**9
    assert request["ExposedPorts"] == {"80/tcp": {}}
    assert host["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]}
    assert host["Binds"] == ["vol:/data:rw", "/srv:/srv:ro"]
    assert host["ExtraHosts"] == ["x.test:::1"]
    assert host["Memory"] == 2 * 1024**2
    assert host["MemorySwap"] == -1
    assert host["Init"] is False
    assert host["Devices"][0]["PathInContainer"] == "/dev/null"
    assert host["DeviceRequests"] == [{"DeviceIDs": ["1"], "Capabilities": [["gpu"]]}]
    assert request_of(INPUTS | {"gpus": "all"})["HostConfig"]["DeviceRequests"][0]["Count"] == -1


def test_what_is_asked_for_is_recorded_so_that_nothing_is_to_do():
    outputs = outputs_of(_inspected(), INPUTS)
    provider = DockerProvider("docker:index/container:Container", lambda level, text: None)
    assert provider.diff("abc", outputs, INPUTS).changes is False
    assert outputs["id"] == "abc"
    assert outputs["healthcheck"]["interval"] == "1m30s"
    assert "__defaults" not in outputs["labels"][0]
    # What the plugin would otherwise take for a change.
    for key in ("attach", "entrypoints", "logs", "readOnly", "rm", "securityOpts", "stdinOpen"):
        assert not outputs.get(key, False)


@pytest.mark.parametrize(
    ("declared", "ports", "must_run"),
    [
        ({}, [], False),  # as the plugin: of one that has to run it notes no ports
        ({"mustRun": False}, INPUTS["ports"], False),
    ],
)
def test_a_stopped_container(declared, ports, must_run):
    found = _inspected(Running=False, ExitCode=137)
    found["NetworkSettings"]["Ports"] = {}
    outputs = outputs_of(found, INPUTS | declared)
    assert outputs["mustRun"] is must_run
    assert outputs["ports"] == ports
    assert outputs["exitCode"] == 137


def test_an_image_is_told_as_it_was_asked_for():
    assert outputs_of(_inspected(), INPUTS)["image"] == "debian"
    assert outputs_of(_inspected(), INPUTS | {"image": "sha256:0"})["image"] == "sha256:1"


class _Actions:
    def __init__(self, outputs):
        self.outputs = outputs

    def read(self, id_, olds):
        return Live(id=id_, outputs=self.outputs)


@pytest.mark.parametrize(
    ("found", "drifted", "kept"),
    [
        ({}, None, True),
        ({"entrypoints": [], "ports": []}, None, True),
        ({"networkDatas": [{"ipAddress": "172.17.0.9"}]}, False, False),
        ({"mustRun": False}, True, False),
    ],
)
def test_only_real_drift_is_told_and_only_then_the_plugins_notes_go(found, drifted, kept):
    olds = {
        "__meta": "{}",
        "__pulumi_raw_state_delta": {},
        "mustRun": True,
        "networkDatas": [{"ipAddress": "172.17.0.2"}],
        "privileged": True,  # of no table: not read, not lost
    }
    provider = DockerProvider("docker:index/container:Container", lambda level, text: None)
    read = {"mustRun": True, "networkDatas": olds["networkDatas"]} | found
    provider._found = _Actions(read)
    live = provider.read("abc", olds)
    assert (live.outputs == olds) is (drifted is None)
    assert ("__meta" in live.outputs) is kept
    assert ("__pulumi_raw_state_delta" in live.outputs) is kept
    if drifted is not None:
        assert live.drifted is drifted
