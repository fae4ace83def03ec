"""The replica as a service: its configuration, its end, and the settings that it needs."""

import json
from typing import Any

import pulumi

from cluster.replica import SETTING, Replica, Replicate
from cluster.storage import Storage
from tests.unit.cluster.conftest import Deploy, stack

TARGET = Replicate(
    to="s3://results/course",
    endpoint="https://s3.example",
    region="eu-1",
    access_key="canary-a",
    secret_key="canary-b",
)
STORE = {"internal": "store.internal:9000", "bucket": "ray", "access_key": "c", "secret_key": "d"}


def placed(runtime: Any, deploy: Deploy, storage: Storage, to: Replicate) -> dict[str, Any]:
    def program() -> Any:
        Replica("replica", stack(runtime, storage, {SETTING: to}))
        return [runtime.placed["replica"].secrets["replica.json"]]

    (told,) = deploy(program)
    service = runtime.placed["replica"]
    shown = f"{service.arguments} {service.environment} {service.files}"
    assert "canary" not in shown
    return dict(json.loads(told))


def test_it_reads_the_stacks_bucket_and_writes_to_another(runtime, deploy):
    told = placed(runtime, deploy, Storage(url="s3://ray", **STORE), TARGET)
    assert told["source"] == {
        "url": "s3://ray",
        "endpoint": "http://store.internal:9000",
        "region": "us-east-1",
        "access": "c",
        "secret": "d",
    }
    assert told["target"] == {
        "url": "s3://results/course",
        "endpoint": "https://s3.example",
        "region": "eu-1",
        "access": "canary-a",
        "secret": "canary-b",
    }


def test_folders_need_no_keys(runtime, deploy):
    storage = Storage(url="file:///srv/storage")
    told = placed(runtime, deploy, storage, Replicate(to="/mnt/results"))
    assert told["source"] == {"url": "file:///srv/storage"}
    assert told["target"] == {"url": "file:///mnt/results"}


def test_it_ends_before_the_store(runtime, deploy, monkeypatch):
    options: list[pulumi.ResourceOptions] = []
    place = runtime.place
    monkeypatch.setattr(
        runtime, "place", lambda service, opts: options.append(opts) or place(service, opts)
    )
    made: list[pulumi.Resource] = []

    def program() -> Any:
        made.append(pulumi.ComponentResource("test:store:Store", "store"))
        storage = Storage(url="s3://ray", **STORE, needs=made)
        Replica("replica", stack(runtime, storage, {SETTING: TARGET}))
        return []

    deploy(program)
    assert options[0].depends_on == made
