"""Requests to Docker and their order, and the records of its answers."""

import pytest
from docker.errors import NotFound

from engine.docker.container import Container, outputs_of, request_of
from engine.docker.provider import DockerProvider
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
    "init": True,
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
    """Docker's description of a container of INPUTS (shortened)."""
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
    assert host["Memory"] == 2 * 1024**2
    assert host["MemorySwap"] == -1
    assert host["Init"] is True
    assert request_of({"image": "debian"})["HostConfig"]["Init"] is False
    assert host["Devices"][0]["PathInContainer"] == "/dev/null"
    assert host["DeviceRequests"] == [{"DeviceIDs": ["1"], "Capabilities": [["gpu"]]}]


def test_what_is_asked_for_is_recorded_so_that_nothing_is_to_do():
    outputs = outputs_of(_inspected(), INPUTS)
    provider = DockerProvider("docker:index/container:Container", lambda level, text: None)
    assert provider.diff("abc", outputs, INPUTS).changes is False
    assert outputs["id"] == "abc"
    assert outputs["healthcheck"]["interval"] == "1m30s"
    assert "__defaults" not in outputs["labels"][0]
    # The plugin would otherwise take them for a change.
    for key in ("attach", "entrypoints", "logs", "readOnly", "rm", "securityOpts", "stdinOpen"):
        assert not outputs.get(key, False)


@pytest.mark.parametrize(
    ("declared", "ports", "must_run"),
    [
        ({}, [], False),  # like the plugin: it records no ports of one that has to run
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


class _Engine:
    """A Docker Engine with at most one container, and the calls that change something."""

    def __init__(self, **state):
        self.there = _inspected(**state)
        self.calls = []

    def inspect_container(self, _name):
        if self.there is None:
            raise NotFound("no such container")
        return self.there

    def inspect_image(self, _name):
        return {"Id": "sha256:1", "RepoDigests": []}

    def remove_container(self, id_, **_options):
        self.calls.append(("remove_container", id_))
        self.there = None

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, *arguments[:2]))
            if name in ("stop", "start") and self.there is None:
                raise NotFound("no such container")
            return {"Id": "abc"}

        return call


def _container(engine):
    return Container(engine, lambda level, text: None)


def test_a_container_is_connected_and_given_its_files_before_it_starts():
    engine = _Engine()
    upload = {"file": "/etc/a", "content": "x", "permissions": "0444"}
    news = INPUTS | {"networksAdvanced": [{"name": "net", "aliases": ["web"]}], "uploads": [upload]}
    live = _container(engine).create(news)
    assert (live.id, live.outputs["uploads"]) == ("abc", [upload])
    assert engine.calls == [
        ("create_container_from_config", request_of(news), "web"),
        ("disconnect_container_from_network", "abc", "bridge"),
        ("connect_container_to_network", "abc", "net"),
        ("put_archive", "abc", "/"),
        ("start", "abc"),
    ]


@pytest.mark.parametrize(
    ("state", "must_run", "found"),
    [
        ({}, True, True),
        ({"Running": False, "Status": "created"}, True, False),
        ({"Running": False, "Status": "created"}, False, False),
        ({"Running": False, "Status": "exited"}, True, False),
        ({"Running": False, "Status": "exited"}, False, True),
    ],
)
def test_what_a_create_left_is_taken_over_or_removed(state, must_run, found):  # F12
    engine = _Engine(**state)
    live = _container(engine).find(INPUTS | {"mustRun": must_run})
    assert (live is not None) is found
    assert engine.calls == ([] if found else [("remove_container", "abc")])


def test_a_container_of_somebody_else_is_left_alone():
    engine = _Engine()
    news = INPUTS | {"labels": [{"label": "a", "value": "other"}]}
    assert _container(engine).find(news) is None
    assert engine.calls == []


@pytest.mark.parametrize(
    ("change", "called"),
    [
        ({}, []),
        ({"destroyGraceSeconds": 3}, []),
        ({"restart": "always"}, ["update_container"]),
        ({"memory": 4}, ["update_container"]),
    ],
)
def test_limits_are_changed_in_place(change, called):
    engine = _Engine()
    olds = outputs_of(engine.there, INPUTS)
    _container(engine).update("abc", olds, INPUTS | change)
    assert [name for name, *_ in engine.calls] == called
    _container(engine).update("abc", olds | {"mustRun": False}, INPUTS | change)
    assert engine.calls[-1] == ("start", "abc")


def test_a_container_that_is_gone_needs_no_end():
    engine = _Engine()
    _container(engine).delete("abc", INPUTS)
    assert engine.calls == [("stop", "abc"), ("remove_container", "abc")]
    _container(engine).delete("abc", INPUTS)
    assert _container(engine).read("abc", INPUTS) is None
