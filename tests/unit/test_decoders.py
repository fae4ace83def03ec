"""Whatever a file or an answer holds, its decoder gives a value or its own error: F80.

Each example is a good document of which parts were replaced, left out, doubled or cut off.
"""

import base64
import copy
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import httpx
import pulumi
import pytest
import urllib3
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine import crypto, history, lock, policy
from engine.config import SettingsFile
from engine.crypto import Crypter
from engine.errors import EngineError
from engine.journal import Journal
from engine.operation import secret_strings
from engine.project import Project, read_settings
from engine.state import Backend, State, stack_outputs
from engine.values import mask, reveal, secret
from infra.machines.local import LocalHost
from infra.operate import backend, states
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import LambdaError
from infra.settings import config
from tests.unit.infra.places.lambda_cloud.test_client import CALLS, MACHINE, TYPE
from trainyard.access import settings_file, state_folder
from trainyard.access.settings_file import SettingsError
from trainyard.client.dashboard import Dashboard, DashboardError
from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import CheckpointError
from trainyard.store import objects
from trainyard.store.objects import StorageError

few = settings(
    derandomize=True,  # the same examples in each run
    max_examples=60,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
DEEP = "@deep"
ODD = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, 2**70, 10**400, float("inf"), float("nan")),
        *("", "\0", "\ud800", "²", "x" * 70_000, "v1:", "2001-01-01", DEEP),
        *([], {}, [None], [[]], {"": None}, {"a": {"b": []}}),
    ]
).map(copy.deepcopy)


def told(error, decode):
    """What a decoder says where it raises its own error, "" where it gives a value."""
    try:
        decode()
    except error as raised:
        return str(raised)
    return ""


def _places(value):
    """Each container of a document with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@st.composite
def changed(draw, good):
    """The text of a document like `good`, in UTF-8."""
    document = [copy.deepcopy(good)]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        container, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from("oooldm")):
            case "o":
                container[key] = draw(ODD)
            case "l" if container is not document:
                del container[key]
            case "d" if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case "m" if isinstance(container, dict):
                container["more"] = draw(ODD)
    [text, *_] = map(json.dumps, document)
    text = text.replace(f'"{DEEP}"', "[" * 30_000 + "]" * 30_000)
    if draw(st.integers(0, 9)) == 0:
        text = text[: draw(st.integers(0, len(text)))]
    return text.encode()


def _provider():
    names = b"".join(
        b"\x8c" + bytes([len(x)]) + x + b"\x94" for x in (b"infra.settings.images", b"P")
    )
    pickled = b"\x80\x04\x95" + bytes(8) + names + b"\x93\x94)\x81\x94."
    return base64.b64encode(pickled).decode()


PHRASE = "correct horse"
STACK = "urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"
PROVIDER = "urn:pulumi:dev::p::pulumi:providers:pulumi-python::default"
INSTANCE = "pulumi-python:dynamic/lambda:Instance"


def _state():
    """A deployment with all that the engine looks at, as a file of the CLI has it."""
    now = "2026-11-01T12:00:00Z"
    crypter = Crypter.fresh(PHRASE)
    token = {**secret("t"), "ciphertext": crypter.encrypt('"t"')}
    del token["value"]
    machine = {
        "urn": f"urn:pulumi:dev::p::{INSTANCE}::m",
        "type": INSTANCE,
        "custom": True,
        "id": "i-1",
        "parent": STACK,
        "provider": f"{PROVIDER}::id",
        "inputs": {"__provider": _provider(), "token": token, "node": "0"},
        "outputs": {"launchedAt": now, "ttlHours": 2, "ids": {"a": "b"}, "healthy": True},
        "dependencies": [PROVIDER],
        "propertyDependencies": {"token": [PROVIDER], "node": []},
        "additionalSecretOutputs": ["token"],
        "customTimeouts": {"create": 5},
        "created": now,
    }
    account = machine | {
        "urn": machine["urn"].replace("Instance::m", "Account::a"),
        "type": INSTANCE.replace("Instance", "Account"),
        "outputs": {"stackId": "0a1b2c3d"},
        "delete": True,
    }
    timer = machine | {
        "urn": machine["urn"].replace("Instance::m", "Deadline::d"),
        "type": INSTANCE.replace("Instance", "Deadline"),
        "inputs": {"at": now},
    }
    return {
        "secrets_providers": {"type": "passphrase", "state": {"salt": crypter.salt}},
        "resources": [
            {"urn": STACK, "type": "pulumi:pulumi:Stack", "outputs": {"url": "x"}},
            {"urn": PROVIDER, "type": PROVIDER.split("::")[2], "custom": True, "id": "id"},
            *(machine, account, timer),
        ],
        "pending_operations": [{"type": "creating", "resource": machine}],
    }


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crypto, "ROUNDS", 1)
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setenv("PULUMI_CONFIG_PASSPHRASE", PHRASE)
        yield


with pytest.MonkeyPatch.context() as few_rounds:
    few_rounds.setattr(crypto, "ROUNDS", 1)
    GOOD_STATE = {"version": 3, "checkpoint": {"stack": "organization/p/dev", "latest": _state()}}


def _write(place, content):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def _use(found: State, place: Backend):
    """Do with a state what each operation does."""
    assert all(isinstance(text, str) for text in secret_strings(found))
    mask(stack_outputs(found.resources))
    with place.lock("p", "dev"):
        journal = Journal(found, lambda new: place.save("p", "dev", new, Crypter.fresh(PHRASE)))
        for entry in journal.olds:
            reveal(entry.get("outputs", {}))
            with journal.step("updating", entry):
                journal.record(entry | {"modified": "now"}, entry)
            if journal.given_again(entry) or entry["urn"] != STACK:
                journal.drop(journal.new(entry["urn"]) or entry)
        for operation in found.pending:
            assert journal.subject(operation["resource"]) is None or operation["type"]
            journal.settle(operation)
        journal.flush()
    assert place.load("p", "dev", PHRASE).pending == []


@few
@given(content=changed(GOOD_STATE))
def test_a_state(tmp_path, content):
    place = Backend(f"file://{tmp_path}", Path())
    path = place.stack_file("p", "dev")
    _write(path, content)
    _write(path.with_suffix(".json.bak"), json.dumps(GOOD_STATE).encode())
    found = []
    said = told(EngineError, lambda: found.append(place.load("p", "dev", PHRASE)))
    assert "\n" not in said
    assert found or "dev.json.bak" in said or "Pulumi's" in said or "pulumi CLI" in said
    of_infra = backend.Backend(url="", place=place.folder)
    for look in (
        lambda: states.read_stacks(Path(), of_infra),
        lambda: states.machines(Path(), of_infra, "p", "dev"),
    ):
        said = told(pulumi.RunError, look)
        assert not said or "restore" in said
    for state in found:
        _use(state, place)


@few
@given(content=changed({"pid": 1, "username": "a", "hostname": "b", "timestamp": "c", "run": "d"}))
@pytest.mark.parametrize("more", [{}, {**lock.myself("c"), "ownFile": "/nowhere"}])
def test_a_lock(tmp_path, content, more):
    if more and content.endswith(b"}"):
        content = json.dumps(more).encode()[:-1] + b"," + content[1:]
    path = tmp_path / "one.json"
    path.write_bytes(content)
    assert lock.judge(path).who
    assert lock.judge(SimpleNamespace(read_tagged=lambda: (content, "tag"))).who
    lock.in_use_by(tmp_path)
    if not told(EngineError, lambda: lock.cancel(tmp_path)):
        assert not path.exists()


HISTORY = {
    "kind": "update",
    "startTime": 1,
    "endTime": 2,
    "result": "succeeded",
    "environment": {"git.head": "abc", "exec.user": "ada"},
    "resourceChanges": {"same": 1},
}
NOTE = {"id": "0a1b2c3d", "inode": 1}
DIGEST = {"size": 1, "sha256": "0" * 64}
MANIFEST = {
    "version": checkpoint_files.VERSION,
    "model": {"file": "model.pt", "job": "digits"},
    "files": {"model.pt": DIGEST, "sub/state.pt": DIGEST},
}


@few
@given(update=changed(HISTORY), login=changed({"current": "file://~"}), note=changed(NOTE))
def test_files_of_a_backend(tmp_path, monkeypatch, update, login, note):
    _write(tmp_path / "a.history.json", update)
    assert all(map(history.line, history.operations(tmp_path)))
    monkeypatch.setenv("PULUMI_CREDENTIALS_PATH", str(tmp_path))
    _write(tmp_path / "credentials.json", login)
    said = told(state_folder.LoginError, lambda: state_folder.logged_in().encode())
    assert not said or "credentials.json" in said
    _write(tmp_path / backend.ID_FILE, note)
    said = told(pulumi.RunError, backend.Backend(url="", place=tmp_path).id)
    assert not said or "restore it, or remove it" in said


class Bucket:
    """A bucket whose only object has this content."""

    address = "a"

    def __init__(self, content):
        self.content = content

    def __truediv__(self, name):
        return self

    def read_tagged(self):
        return self.content, "tag"


@few
@given(content=changed({"ids": {"a": "0a1b2c3d"}}))
def test_the_ids_of_a_bucket(content):
    said = told(pulumi.RunError, lambda: backend._drawn_in_bucket(Bucket(content)))
    assert not said or "restore it, or remove it" in said


@few
@given(content=changed(MANIFEST))
def test_a_manifest_of_a_checkpoint(content):
    said = told(CheckpointError, lambda: checkpoint_files._parsed(content)["files"])
    assert not said or "manifest.json" in said


PAGE = (
    '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="urn:a"><Contents><Key>a/b</Key>'
    "<Size>12</Size><ETag>&quot;x&quot;</ETag></Contents><CommonPrefixes><Prefix>a/</Prefix>"
    "</CommonPrefixes></ListBucketResult>"
)
XML_PARTS = ["12", "a/b", "UTF-8", "<Key>", "</Key>", "Size", "<ETag>", "ListBucketResult", "a/"]
XML_ODD = [
    "",
    "²",
    "9" * 5000,
    "-1",
    "1e9",
    "utf-7",
    "utf-16",
    "x-none",
    "<a>" * 9999,
    "&a;",
    "%ff",
    "\0",
]


@few
@given(
    swaps=st.lists(st.tuples(st.sampled_from(XML_PARTS), st.sampled_from(XML_ODD)), max_size=2),
    end=st.integers(0, 60),
)
@example(swaps=[("12", "²")], end=0)
@example(swaps=[("12", "9" * 5000)], end=0)
def test_a_listing_of_a_store(monkeypatch, swaps, end):
    text = PAGE
    for part, odd in swaps:
        text = text.replace(part, odd, 1)
    content = text[: len(text) - end if end > 50 else None].encode()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("TRAINYARD_STORE_PATIENCE_S", "0")
    store = objects.BucketStore("bucket", endpoint="http://127.0.0.1:9")
    for status in (200, 403):
        reply = SimpleNamespace(status=status, read=lambda most: content[:most])
        reply.close = reply.release_conn = lambda: None
        monkeypatch.setattr(store._requests._pool, "request", lambda *_, r=reply, **__: r)
        for look in (store.listed, store.folders, lambda: store.read("a")):
            said = told((StorageError, FileNotFoundError), look)
            assert not said or "bucket" in said


OFFER = {
    "instance_type": TYPE
    | {"gpu_description": "A10", "specs": {"vcpus": 1, "memory_gib": 1, "gpus": 1}},
    "regions_with_capacity_available": [{"name": "us-east-1"}],
}
ANSWERS = {
    "instance_types": {"gpu_1x_a10": OFFER},
    "instances": [MACHINE | {"tags": [{"key": "a", "value": "b"}]}],
    "launch": {"instance_ids": ["i-1"]},
    "ssh_keys": [{"id": "k", "name": "n", "public_key": "ssh-ed25519 A"}],
    "file_systems": [{"id": "f", "name": "n", "mount_point": "/a", "region": {"name": "r"}}],
    "firewall_rulesets": [
        {
            "id": "r",
            "name": "n",
            "region": {"name": "r"},
            "rules": [{"protocol": "tcp", "source_network": "0.0.0.0/0", "port_range": [1, 2]}],
            "instance_ids": ["i"],
        }
    ],
}
ERROR = {"error": {"code": "global/x", "message": "m", "suggestion": "s"}}


@few
@pytest.mark.parametrize("name", ANSWERS)
@given(data=st.data(), status=st.sampled_from([200, 200, 200, 302, 400, 429, 500]))
def test_an_answer_of_lambda(name, data, status):
    content = data.draw(changed({"data": ANSWERS[name]} if status == 200 else ERROR))
    later = data.draw(st.sampled_from(["", "1e999", "-1", "x", "Mon, 99 Foo 2099 00:00:00 GMT"]))
    headers = {
        "Retry-After": later,
        "Location": data.draw(st.sampled_from(["", "http://[", "//x"])),
    }

    def answer(_):
        return httpx.Response(status, content=content, headers=headers)

    client = Client("k" * 20, transport=httpx.MockTransport(answer))
    assert len(told(LambdaError, lambda: CALLS[name](client))) < 2000


@few
@given(content=changed([{"job_id": "a", "status": "RUNNING", "metadata": {"a": "b"}}]))
def test_an_answer_of_the_dashboard(content):
    board = Dashboard(SimpleNamespace(dashboard_url="http://127.0.0.1:9", bearer={}))

    def request(*_, **__):
        return urllib3.HTTPResponse(io.BytesIO(content), status=200, preload_content=False)

    board._pool = SimpleNamespace(request=request)
    told(DashboardError, lambda: board.get("/api/jobs/"))


SETTINGS = {
    "encryptionsalt": GOOD_STATE["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"],
    "config": {
        "p:owner": "ada",
        "p:workers": 2,
        "p:head": {"cpus": 1.5, "resources": {"tpu": 1}},
        "p:nodeGroups": [{"name": "a", "count": 1}],
        "p:token": {"secure": "v1:a:b"},
    },
}
TOKENS = 'a|&a |*a|<<|: |- |\n|\n  |{|}|[|]|!!set |!!binary |\'|"|"\\0"|2001-01-01|2001-13-01|? |='
TOKENS += "|.inf|#|\t|!a |config:\n|encryptionsalt: |0x1|1|%YAML 9.9\n|---\n|,|\ufeff|\x85|>\n|- - "
YAML = st.lists(st.sampled_from(TOKENS.split("|")), max_size=12).map(lambda x: "".join(x).encode())


@few
@given(content=st.one_of(changed(SETTINGS), YAML))
def test_settings(tmp_path, content):
    said = told(SettingsError, lambda: settings_file.load(content.decode(), "a.yaml"))
    assert not said or said.startswith("a.yaml")
    _write(tmp_path / "Pulumi.yaml", b"name: p\nruntime: python\n")
    _write(tmp_path / "Pulumi.dev.yaml", content)
    project = Project.find(tmp_path)

    def change():
        file = SettingsFile(project, "dev")
        file.set("owner", "b", path=False)
        file.remove("owner", path=False)
        file.write()

    for use in (
        lambda: read_settings(project, "dev"),
        lambda: read_settings(project, "dev", hidden="[secret]"),
        change,
        lambda: policy.levels(tmp_path / "Pulumi.dev.yaml", {"owner"}),
    ):
        assert "\n" not in told(EngineError, use)


RAW = {"owner": "ada", "workers": 2, "head": {"cpus": 1}, "nodeGroups": [{"name": "a", "count": 1}]}
RAW |= {"hosts": [{"address": "192.0.2.4", "user": "u", "hostKey": "k"}], "portOffset": 1}


@few
@given(content=changed(RAW))
def test_settings_of_a_stack(content):
    try:
        raw = json.loads(content)
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in raw.items()}
    except (ValueError, AttributeError, RecursionError):
        texts = {"nodeGroups": content.decode(errors="replace")}
    host = LocalHost(cpus=4, memory_mib=8192)
    said = told(pulumi.RunError, lambda: config.parse(texts, host, "dev"))
    assert not said or "fault" in said
