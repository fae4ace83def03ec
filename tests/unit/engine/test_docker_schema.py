"""Docker properties: defaults as the plugin records them, and which changes count."""

import pytest

from engine.docker_provider import DockerProvider
from engine.docker_schema import canonical, differing
from engine.durations import format_duration, parse_duration
from engine.errors import UnsupportedError
from engine.values import UNKNOWN

CONTAINER = "docker:index/container:Container"
IMAGE = "docker:index/remoteImage:RemoteImage"
NETWORK = "docker:index/network:Network"
VOLUME = "docker:index/volume:Volume"


def _provider(type_):
    return DockerProvider(type_, lambda level, text: None)


def _checked(type_, **inputs):
    checked, faults = _provider(type_).check({}, inputs)
    assert faults == []
    return checked


def _faults(type_, **inputs):
    return _provider(type_).check({}, inputs)[1]


def test_defaults_of_a_container_are_those_that_the_plugin_records():
    assert _checked(CONTAINER, name="web", image="debian") == {
        "__defaults": [
            "containerReadRefreshTimeoutMilliseconds",
            "mustRun",
            "networkMode",
            "removeVolumes",
            "restart",
            "start",
            "waitTimeout",
        ],
        "containerReadRefreshTimeoutMilliseconds": 15000,
        "image": "debian",
        "mustRun": True,
        "name": "web",
        "networkMode": "bridge",
        "removeVolumes": True,
        "restart": "no",
        "start": True,
        "waitTimeout": 60,
    }


def test_defaults_inside_objects():
    checked = _checked(
        CONTAINER,
        name="web",
        image="debian",
        ports=[{"internal": 80, "external": 8080, "ip": "127.0.0.1"}],
        healthcheck={"tests": ["CMD", "true"], "interval": "2s", "timeout": "3s"},
        labels=[{"label": "stack", "value": "dev"}],
        capabilities={"drops": ["ALL"]},
        devices=[{"hostPath": "/dev/null"}],
    )
    assert checked["ports"] == [
        {
            "__defaults": ["protocol"],
            "external": 8080,
            "internal": 80,
            "ip": "127.0.0.1",
            "protocol": "tcp",
        }
    ]
    assert checked["healthcheck"]["__defaults"] == ["startInterval", "startPeriod"]
    assert checked["healthcheck"]["startInterval"] == "0s"
    assert checked["labels"][0]["__defaults"] == []
    assert checked["capabilities"] == {"__defaults": [], "drops": ["ALL"]}
    assert checked["devices"][0]["permissions"] == "rwm"


@pytest.mark.parametrize(
    ("type_", "inputs", "defaults"),
    [
        (NETWORK, {"name": "n"}, {"ipamDriver": "default"}),
        (VOLUME, {"name": "v"}, {}),
        (IMAGE, {"name": "i"}, {}),
    ],
)
def test_defaults_of_the_others(type_, inputs, defaults):
    assert _checked(type_, **inputs) == inputs | defaults | {"__defaults": sorted(defaults)}


def test_defaults_of_a_build():
    build = _checked(IMAGE, name="i", build={"context": "ctx"})["build"]
    assert build == {
        "__defaults": ["dockerfile", "remove"],
        "context": "ctx",
        "dockerfile": "Dockerfile",
        "remove": True,
    }


def test_what_a_preview_does_not_know_is_let_through():
    ports = [{"internal": UNKNOWN, "external": 1, "ip": "127.0.0.1"}]
    checked = _checked(CONTAINER, name="web", image=UNKNOWN, healthcheck=UNKNOWN, ports=ports)
    assert checked["image"] == UNKNOWN
    assert checked["ports"] == ports


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"image": ""}, "Container.image has to be given"),
        ({"name": None}, "Container.name has to be given"),
        ({"ports": [{"internal": 80}]}, "Container.ports.external has to be given"),
        ({"restart": "sometimes"}, "'sometimes' must be no, on-failure, always or unless-stopped"),
        ({"gpus": "device=0,1"}, "'device=0,1' must be 'all' or 'device=<one index or UUID>'"),
        ({"healthcheck": {"interval": "60s"}}, "write '1m0s' for '60s'"),
        ({"healthcheck": {"interval": "soon"}}, "'soon' is no duration such as 500ms, 30s"),
        ({"uploads": [{"file": "/a", "content": ""}]}, "/a needs content or contentBase64"),
        ({"uploads": [{"file": "/a", "content": "x", "permissions": "644"}]}, "four octal digits"),
    ],
)
def test_faults_name_the_value_and_the_bound(inputs, words):
    faults = _faults(CONTAINER, **{"name": "web", "image": "debian", **inputs})
    assert len(faults) == 1
    assert words in faults[0]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"privileged": True}, "Container.privileged"),
        ({"rm": True}, "Container.rm"),
        ({"uploads": [{"file": "/a", "source": "b"}]}, "Container.uploads.source"),
    ],
)
def test_what_only_the_plugin_knows_is_refused_by_name(inputs, words):
    with pytest.raises(UnsupportedError, match=words) as refused:
        _provider(CONTAINER).check({}, {"name": "web", "image": "debian", **inputs})
    assert "run it with the pulumi CLI" in str(refused.value)
    with pytest.raises(UnsupportedError, match="docker:index/service:Service"):
        _provider("docker:index/service:Service")


# As the plugin records a container (shortened), and the inputs that it came from.
RECORDED = {
    "__meta": "{}",
    "__pulumi_raw_state_delta": {},
    "attach": False,
    "capabilities": {"adds": ["CAP_CHOWN"], "drops": ["ALL"]},
    "command": ["sleep", "inf"],
    "containerReadRefreshTimeoutMilliseconds": 15000,
    "dns": None,
    "entrypoints": [],
    "envs": ["A=1", "B=2"],
    "groupAdds": ["109", "44"],
    "healthcheck": {
        "interval": "2s",
        "retries": 0,
        "startInterval": "0s",
        "startPeriod": "0s",
        "tests": ["CMD", "true"],
        "timeout": "3s",
    },
    "hostname": "5d52cfc4ee67",
    "image": "debian",
    "init": False,
    "logDriver": "json-file",
    "logOpts": {},
    "memory": 0,
    "memorySwap": 0,
    "mustRun": True,
    "name": "web",
    "networkMode": "bridge",
    "networksAdvanced": [
        {"aliases": ["web"], "driverOpts": [], "gwPriority": None, "ipv4Address": "", "name": "net"}
    ],
    "ports": [
        {"external": 17000, "internal": 7000, "ip": "127.0.0.1", "protocol": "tcp"},
        {"external": 18000, "internal": 8000, "ip": "127.0.0.1", "protocol": "tcp"},
    ],
    "removeVolumes": True,
    "restart": "no",
    "shmSize": 64,
    "start": True,
    "volumes": [
        {"containerPath": "/data", "hostPath": "", "readOnly": None, "volumeName": "vol"},
    ],
    "wait": False,
    "waitTimeout": 60,
}
DECLARED = {
    "name": "web",
    "image": "debian",
    "command": ["sleep", "inf"],
    "capabilities": {"drops": ["ALL"], "adds": ["CAP_CHOWN"]},
    "envs": ["B=2", "A=1"],
    "groupAdds": ["44", "109"],
    "healthcheck": {"tests": ["CMD", "true"], "interval": "2s", "timeout": "3s"},
    "networksAdvanced": [{"name": "net", "aliases": ["web"]}],
    "ports": [
        {"internal": 8000, "external": 18000, "ip": "127.0.0.1"},
        {"internal": 7000, "external": 17000, "ip": "127.0.0.1"},
    ],
    "volumes": [{"volumeName": "vol", "containerPath": "/data"}],
}


def _diff(olds, **changes):
    return _provider(CONTAINER).diff("id", olds, _checked(CONTAINER, **(DECLARED | changes)))


def test_a_state_of_the_plugin_is_no_change():
    diff = _diff(RECORDED)
    assert diff.changes is False
    assert diff.replaces == []


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({"restart": "always"}, []),
        ({"memory": 64}, []),
        ({"healthcheck": {"tests": ["CMD", "false"]}}, []),
        ({"init": True}, []),
        ({"waitTimeout": 5}, []),
        ({"image": "other"}, ["image"]),
        ({"image": UNKNOWN}, ["image"]),
        ({"command": ["inf", "sleep"]}, ["command"]),
        ({"envs": ["A=1"]}, ["envs"]),
        ({"ports": []}, ["ports"]),
        ({"volumes": [{"volumeName": "v2", "containerPath": "/data"}]}, ["volumes"]),
        ({"capabilities": {"drops": ["ALL"]}}, ["capabilities"]),
        ({"networksAdvanced": [{"name": "net"}]}, ["networksAdvanced"]),
        ({"readOnly": True}, ["readOnly"]),
        ({"user": "1000", "labels": [{"label": "a", "value": "b"}]}, ["labels", "user"]),
    ],
)
def test_what_a_change_means(changes, replaces):
    diff = _diff(RECORDED, **changes)
    assert diff.changes is True
    assert sorted(diff.replaces) == replaces
    assert diff.delete_before_replace is bool(replaces)


@pytest.mark.parametrize(
    ("drift", "replaces"),
    [
        ({"mustRun": False}, []),
        ({"mustRun": False, "ports": []}, ["ports"]),
        ({"memory": 512}, []),
        ({"name": "away"}, ["name"]),
        ({"hostname": "other"}, None),
    ],
)
def test_what_drift_means(drift, replaces):
    diff = _diff(RECORDED | drift)
    assert diff.changes is (replaces is not None)
    assert diff.replaces == (replaces or [])


def test_two_of_one_name_cannot_be_except_images():
    for type_, inputs, change in (
        (NETWORK, {"name": "n"}, {"driver": "overlay"}),
        (VOLUME, {"name": "v"}, {"driver": "nfs"}),
    ):
        news = _checked(type_, **inputs, **change)
        assert _provider(type_).diff("id", inputs, news).delete_before_replace
        news = _checked(type_, **change, name="other")
        assert not _provider(type_).diff("id", inputs, news).delete_before_replace
    news = _checked(IMAGE, name="i", triggers={"a": "2"})
    diff = _provider(IMAGE).diff("id", {"name": "i", "triggers": {"a": "1"}}, news)
    assert diff.replaces == ["triggers"]
    assert not diff.delete_before_replace


def test_essence_leaves_what_says_something():
    assert canonical({"a": "", "b": 0, "c": [], "d": {"e": None}, "__defaults": ["x"]}) is None
    assert canonical([{"b": 1}, {"a": 1}]) == canonical([{"a": 1, "c": ""}, {"b": 1}])
    assert canonical(["b", "a"], ordered=True) == ["b", "a"]
    assert canonical(-1) == -1


def test_differing_takes_what_docker_decides_as_it_is():
    table = _provider(CONTAINER)._table
    assert differing(table, {"hostname": "x", "user": "root"}, {}) == []
    assert differing(table, {"cpuShares": 5}, {}) == ["cpuShares"]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0s", 0),
        ("500ms", 500_000_000),
        ("1.5s", 1_500_000_000),
        ("30s", 30_000_000_000),
        ("1m0s", 60_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1h0m0s", 3_600_000_000_000),
    ],
)
def test_durations_as_go_writes_them(text, nanoseconds):
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == text
