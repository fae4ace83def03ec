"""Settings: defaults, and every kind of bad value in one message."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra import config
from infra.hosts.local import LocalHost

ROOT = Path(__file__).resolve().parents[3]
Settings = Callable[..., dict[str, str]]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("workers", {"workers": -1}, "from 1 to 64"),
    ("workers", {"workers": 0}, "from 1 to 64"),
    ("workers", {"workers": 65}, "from 1 to 64"),
    ("workers", {"workers": "two"}, "whole number"),
    ("workers", {"workers": "1.5"}, "whole number"),
    ("worker", {"worker": "4"}, "must be an object"),
    ("worker", {"worker": "{cpus: 1"}, "must be an object"),
    ("head", {"head": [1]}, "must be an object"),
    ("worker.cpu", {"worker": {"cpu": 2}}, "did you mean cpus"),
    ("worker.cpus", {"worker": {"cpus": -1}}, "from 0"),
    ("worker.cpus", {"worker": {"cpus": "4"}}, "must be a number"),
    ("head.gpus", {"head": {"gpus": True}}, "must be a number"),
    ("worker.gpus", {"worker": {"gpus": 10**9}}, "to 1000000"),
    ("worker.memoryMib", {"worker": {"memoryMib": 0}}, "MiB from 1"),
    ("worker.memoryMib", {"worker": {"memoryMib": 1.5}}, "whole number of MiB"),
    ("worker.objectStoreMib", {"worker": {"objectStoreMib": 10}}, "MiB from 80"),
    ("worker.resources", {"worker": {"resources": ["tpu"]}}, "amounts by name"),
    ("worker.resources.CPU", {"worker": {"resources": {"CPU": 1}}}, "a name other than"),
    ("worker.resources.tpu", {"worker": {"resources": {"tpu": "x"}}}, "must be a number"),
    ("objectStore", {"objectStore": "s3"}, "auto, minio, directory"),
    ("bucket", {"bucket": "Ray"}, "lowercase"),
    ("bucket", {"bucket": ""}, "lowercase"),
    ("bucket", {"bucket": "a" * 64}, "3 to 63"),
    ("bucket", {"bucket": "ray/../x"}, "lowercase"),
    ("dataDir", {"dataDir": "data"}, "absolute"),
    ("dataDir", {"dataDir": "/srv/../etc"}, "without '..'"),
    ("keepData", {"keepData": "yes"}, "true or false"),
    ("stateDir", {"stateDir": "/tmp/" + "x" * 40}, "at most 25 bytes"),
    ("stateDir", {"stateDir": "/tmp/a b"}, "letters, digits"),
    ("stateDir", {"stateDir": "/srv/ty", "dataDir": "/srv/ty/data"}, "destroy removes"),
    ("startTimeoutSeconds", {"startTimeoutSeconds": 1}, "from 5 to 3600"),
    ("dashboardPort", {"dashboardPort": 80}, "from 1024 to 65535"),
    ("dashboardPort", {"dashboardPort": 70000}, "from 1024 to 65535"),
    ("gcsPort", {"gcsPort": ""}, "whole number"),
    ("objectStorePort", {"objectStorePort": 6379}, "must differ from gcsPort"),
    ("agentPort", {"agentPort": 65534}, "must not pass 65535"),
    ("agentPort", {"agentPort": 8264}, "must not hold dashboardPort = 8265"),
    ("wrokers", {"wrokers": 3}, "did you mean workers"),
]


def test_defaults_of_the_schema_are_valid_and_fit_the_machine(
    settings: Settings, host: LocalHost
) -> None:
    parsed = config.parse(settings(), host, "dev")
    assert len(parsed.workers) == 2
    assert parsed.workers[0].cpus == host.cpus / 2
    assert parsed.head.cpus == 0
    everything = sum(node.memory_mib for node in (parsed.head, *parsed.workers))
    shared = sum(node.object_store_mib for node in (parsed.head, *parsed.workers))
    assert everything + shared < host.memory_mib


@pytest.mark.parametrize("cpus", [1, 2, 3, 64])
@pytest.mark.parametrize("workers", [1, 2, 64])
def test_every_worker_gets_a_cpu_on_any_machine(
    settings: Settings, cpus: int, workers: int
) -> None:
    machine = LocalHost(cpus=cpus, memory_mib=2048)
    parsed = config.parse(settings(workers=workers), machine, "dev")
    assert all(node.cpus >= 1 and node.object_store_mib >= 80 for node in parsed.workers)


@pytest.mark.parametrize(("key", "changes", "bound"), BAD)
def test_a_bad_setting_is_named_with_value_bound_and_action(  # F2
    settings: Settings, host: LocalHost, key: str, changes: dict[str, Any], bound: str
) -> None:
    with pytest.raises(pulumi.RunError) as raised:
        config.parse(settings(**changes), host, "dev")
    lines = [line for line in str(raised.value).splitlines() if line.startswith(f"  - {key} = ")]
    assert len(lines) == 1, str(raised.value)
    assert bound in lines[0]
    assert re.search(r"; \w+", lines[0]), "no next action"


def test_all_faults_are_in_one_message(settings: Settings, host: LocalHost) -> None:  # F2
    changes = {"workers": -1, "bucket": "Ray", "dashboardPort": 1, "worker": {"cpus": -1}, "x": 1}
    with pytest.raises(pulumi.RunError) as raised:
        config.parse(settings(**changes), host, "lab")
    message = str(raised.value)
    assert "5 faults" in message
    assert "Pulumi.lab.yaml" in message
    for key in ("workers", "bucket", "dashboardPort", "worker.cpus", "x"):
        assert f"- {key} = " in message


def test_a_setting_without_its_default_is_named(settings: Settings, host: LocalHost) -> None:
    raw = settings()
    del raw["workers"], raw["bucket"]
    with pytest.raises(pulumi.RunError, match="workers is not set") as raised:
        config.parse(raw, host, "dev")
    assert "bucket is not set" in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*config.NODE_FIELDS, "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(data=st.data())
@hypothesis_settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_settings_are_accepted_whole_or_refused_by_name(  # F2
    settings: Settings, host: LocalHost, data: st.DataObject
) -> None:
    raw = settings()
    keys = data.draw(st.lists(st.sampled_from(sorted(raw)), min_size=1, max_size=5, unique=True))
    for key in keys:
        raw[key] = data.draw(st.text(max_size=20) | JSON.map(json.dumps))
    try:
        parsed = config.parse(raw, host, "dev")
    except pulumi.RunError as error:
        faults = [line for line in str(error).splitlines() if line.startswith("  - ")]
        assert faults
        changed = (*keys, "stateDir", "agentPort", *(key for key in raw if key.endswith("Port")))
        assert all(line.startswith(tuple(f"  - {key}" for key in changed)) for line in faults)
    else:
        numbers = [p.number for p in parsed.ports(object_store=True, prometheus=True)]
        assert len(numbers) == len(set(numbers))
        assert all(1024 <= number <= 65535 for number in numbers)
        assert len(str(parsed.state_dir)) <= config.STATE_DIR_LIMIT
        assert 1 <= len(parsed.workers) <= 64


@pytest.mark.parametrize(
    "socket",
    ["/ray-worker-63/ray/{}/sockets/plasma_store", "/ray-head/ray/{}/sockets/dash_MetricsHead"],
)
def test_rays_longest_sockets_fit_below_the_longest_state_dir(socket: str) -> None:
    session = "session_2026-11-20_18-33-23_123456_4194304"
    assert config.STATE_DIR_LIMIT + len(socket.format(session)) <= 107


def test_reads_what_pulumi_passes_on(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, host: LocalHost
) -> None:
    raw = {f"project:{key}": value for key, value in settings(workers=3).items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({**raw, "aws:region": "x", "project:typo": "1"}))
    with pytest.raises(pulumi.RunError, match="typo"):
        config.read(host)
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(raw))
    assert len(config.read(host).workers) == 3


def test_every_key_of_the_schema_is_documented_and_no_other(
    schema: dict[str, dict[str, Any]],
) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (?:integer|string|boolean|object) \|", page, flags=re.MULTILINE
    )
    assert sorted(rows) == sorted(schema)


def test_the_schema_types_its_keys_and_describes_them(schema: dict[str, dict[str, Any]]) -> None:
    kinds = {"integer": int, "string": str, "boolean": bool, "object": dict}
    for key, entry in schema.items():
        assert isinstance(entry["default"], kinds[entry["type"]]), key
        assert entry["description"], key


def test_the_dev_stack_holds_no_secret() -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    assert not re.search(r"(?i)password|secret:|token|accesskey", text)
