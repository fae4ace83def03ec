"""Docker properties: defaults as the plugin records them, and which changes count."""

import pytest

from engine.docker.provider import DockerProvider
from engine.docker.schema import canonical, differing
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


# The program's inputs of every container.
GIVEN = {"name": "web", "image": "debian", "mustRun": True, "restart": "no"}
CHECK = {"tests": ["CMD", "true"], "startPeriod": "0s", "retries": 0}


def test_defaults_of_a_container_are_those_that_the_plugin_records():
    defaults = {"containerReadRefreshTimeoutMilliseconds": 15000, "networkMode": "bridge"}
    defaults |= {"removeVolumes": True, "start": True, "waitTimeout": 60}
    assert _checked(CONTAINER, **GIVEN) == GIVEN | defaults | {"__defaults": [*defaults]}


def test_defaults_inside_objects():
    checked = _checked(
        CONTAINER,
        **GIVEN,
        ports=[{"internal": 80, "external": 8080, "ip": "127.0.0.1"}],
        healthcheck=CHECK | {"interval": "2s", "timeout": "3s"},
        labels=[{"label": "stack", "value": "dev"}],
        capabilities={"drops": ["ALL"]},
        devices=[{"hostPath": "/dev/null"}],
    )
    port = {"external": 8080, "internal": 80, "ip": "127.0.0.1", "protocol": "tcp"}
    assert checked["ports"] == [port | {"__defaults": ["protocol"]}]
    assert checked["healthcheck"]["__defaults"] == ["startInterval"]
    assert checked["healthcheck"]["startInterval"] == "0s"
    assert checked["labels"][0]["__defaults"] == []
    assert checked["capabilities"] == {"__defaults": [], "drops": ["ALL"]}
    assert checked["devices"][0]["permissions"] == "rwm"


BUILD = {"context": "ctx", "dockerfile": "Dockerfile", "remove": True}
BUILD |= {"__defaults": ["dockerfile", "remove"]}


@pytest.mark.parametrize(
    ("type_", "inputs", "defaults"),
    [
        (NETWORK, {"name": "n"}, {"ipamDriver": "default"}),
        (VOLUME, {"name": "v"}, {}),
        (IMAGE, {"name": "i", "keepLocally": True, "build": {"context": "ctx"}}, {}),
    ],
)
def test_defaults_of_the_others(type_, inputs, defaults):
    expected = inputs | defaults | {"__defaults": sorted(defaults)}
    expected |= {"build": BUILD} if "build" in inputs else {}
    assert _checked(type_, **inputs) == expected


def test_what_a_preview_does_not_know_is_let_through():
    ports = [{"internal": UNKNOWN, "external": 1, "ip": "127.0.0.1"}, UNKNOWN]
    given = GIVEN | {"image": UNKNOWN, "healthcheck": UNKNOWN, "ports": ports}
    checked = _checked(CONTAINER, **given)
    assert (checked["image"], checked["healthcheck"]) == (UNKNOWN, UNKNOWN)
    assert checked["ports"] == [
        {**ports[0], "protocol": "tcp", "__defaults": ["protocol"]},
        UNKNOWN,
    ]


def _times(**times):
    return CHECK | {"interval": "2s", "timeout": "3s"} | times


def _upload(**fields):
    return {"file": "/a", "content": "x", "permissions": "0644"} | fields


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"image": ""}, "Container.image has to be given"),
        ({"name": None}, "Container.name has to be given"),
        ({"ports": [{"internal": 80, "ip": "::1"}]}, "Container.ports.external has to be given"),
        ({"restart": "sometimes"}, "'sometimes' must be no, on-failure, always or unless-stopped"),
        ({"gpus": "device=0,1"}, "'device=0,1' must be 'device=<one index or UUID>'"),
        ({"healthcheck": _times(interval="60s")}, "write '1m0s' for '60s'"),
        ({"healthcheck": _times(interval="soon")}, "'soon' is not a duration such as 500ms, 30s"),
        ({"healthcheck": _times(timeout=None)}, "Container.healthcheck.timeout has to be given"),
        ({"uploads": [_upload(content="")]}, "Container.uploads.content has to be given"),
        ({"uploads": [_upload(permissions="644")]}, "four octal digits, as 0644"),
    ],
)
def test_faults_name_the_value_and_the_bound(inputs, words):
    faults = _faults(CONTAINER, **(GIVEN | inputs))
    assert len(faults) == 1
    assert words in faults[0]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"privileged": True}, "Container.privileged"),
        ({"wait": True}, "Container.wait"),
        ({"start": False}, "Container.start = False"),
        ({"uploads": [{"file": "/a", "source": "b"}]}, "Container.uploads.source"),
    ],
)
def test_what_only_the_plugin_knows_is_refused_by_name(inputs, words):
    with pytest.raises(UnsupportedError, match=words) as refused:
        _provider(CONTAINER).check({}, GIVEN | inputs)
    assert "run it with the pulumi CLI" in str(refused.value)
    with pytest.raises(UnsupportedError, match=r"RemoteImage\.keepLocally = False"):
        _provider(IMAGE).check({}, {"name": "i", "keepLocally": False})
    with pytest.raises(UnsupportedError, match="docker:index/service:Service"):
        _provider("docker:index/service:Service")


# As the plugin records a container (shortened), and the inputs that it came from.
RECORDED = {
    "__meta": "{}",
    "__pulumi_raw_state_delta": {},
    "attach": False,
    "capabilities": {"adds": [], "drops": ["ALL"]},
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
DECLARED = GIVEN | {
    "command": ["sleep", "inf"],
    "capabilities": {"drops": ["ALL"]},
    "envs": ["B=2", "A=1"],
    "groupAdds": ["44", "109"],
    "healthcheck": CHECK | {"interval": "2s", "timeout": "3s"},
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
        ({"healthcheck": _times(tests=["CMD", "false"])}, ["healthcheck"]),
        ({"init": True}, ["init"]),
        ({"destroyGraceSeconds": 5}, []),
        ({"image": "other"}, ["image"]),
        ({"image": UNKNOWN}, ["image"]),
        ({"command": ["inf", "sleep"]}, ["command"]),
        ({"envs": ["A=1"]}, ["envs"]),
        ({"ports": []}, ["ports"]),
        ({"volumes": [{"volumeName": "v2", "containerPath": "/data"}]}, ["volumes"]),
        ({"capabilities": {"drops": ["KILL"]}}, ["capabilities"]),
        ({"networksAdvanced": [{"name": "net"}]}, ["networksAdvanced"]),
        ({"shmSize": 1, "labels": [{"label": "a", "value": "b"}]}, ["labels", "shmSize"]),
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
    labels = [{"label": "a", "value": "b"}]
    for type_, inputs, change in (
        (NETWORK, {"name": "n"}, {"driver": "overlay"}),
        (VOLUME, {"name": "v"}, {"labels": labels}),
    ):
        news = _checked(type_, **inputs, **change)
        assert _provider(type_).diff("id", inputs, news).delete_before_replace
        news = _checked(type_, **change, name="other")
        assert not _provider(type_).diff("id", inputs, news).delete_before_replace
    olds = {"name": "i", "keepLocally": True, "build": {"context": "a"}}
    news = _checked(IMAGE, **olds | {"build": {"context": "b"}})
    diff = _provider(IMAGE).diff("id", olds, news)
    assert diff.replaces == ["build"]
    assert not diff.delete_before_replace


def test_essence_leaves_what_says_something():
    assert canonical({"a": "", "b": 0, "c": [], "d": {"e": None}, "__defaults": ["x"]}) is None
    assert canonical([{"b": 1}, {"a": 1}]) == canonical([{"a": 1, "c": ""}, {"b": 1}])
    assert canonical(["b", "a"], ordered=True) == ["b", "a"]
    assert canonical(-1) == -1


def test_differing_takes_what_docker_decides_as_it_is():
    table = _provider(CONTAINER)._table
    assert differing(table, {"stopTimeout": 5, "shmSize": 64}, {}) == []
    assert differing(table, {"memory": 5}, {}) == ["memory"]


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
