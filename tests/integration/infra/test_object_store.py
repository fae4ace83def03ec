"""A bucket and a user in a real MinIO that comes and goes with its data kept."""

import io
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from minio import Minio
from minio.error import S3Error

from cluster.minio_admin import BucketProvider, StoreUserProvider
from cluster.object_store import bucket_policy
from infra.runtimes.process import DaemonProvider, ProgramProvider

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("minio_on_path"),
]


@pytest.fixture
def start(short_folder: Path, free_port: Callable[[], int]) -> Iterator[Callable[[], Any]]:
    """Start a MinIO with new root credentials on the data of the last one."""
    daemon = {"folder": str(short_folder / "s"), "identifier": "test", "ports": {}}
    DaemonProvider().create(daemon)

    def start_minio() -> dict[str, Any]:
        port, root = free_port(), secrets.token_hex(20)
        files = f"{daemon['folder']}/minio/files"
        command = ["minio", "server", str(short_folder / "data"), "--address", f"127.0.0.1:{port}"]
        props = {
            "folder": daemon["folder"],
            "name": "minio",
            "command": command,
            "environment": {
                "MINIO_ROOT_USER_FILE": f"{files}/user",
                "MINIO_ROOT_PASSWORD_FILE": f"{files}/password",
            },
            "files": {},
            "secrets": {"user": "root-user", "password": root},
            "folders": [],
            "stopSeconds": 5,
            "ports": [{"number": port, "setting": "objectStorePort"}],
            "health": [f"http://127.0.0.1:{port}/minio/health/ready"],
            "startTimeout": 30,
        }
        ProgramProvider().delete("minio", props)
        ProgramProvider().create(props)
        return {"endpoint": f"127.0.0.1:{port}", "rootUser": "root-user", "rootPassword": root}

    yield start_minio
    DaemonProvider().delete("x", daemon)


def _client(store: dict[str, Any], user: str, key: str) -> Minio:
    return Minio(endpoint=store["endpoint"], access_key=user, secret_key=key, secure=False)


def test_the_bucket_outlives_the_stack_and_the_user_does_not(
    start: Callable[[], Any], short_folder: Path
) -> None:
    bucket, user, key = BucketProvider(), StoreUserProvider(), secrets.token_hex(20)
    store = start()
    bucket_props = {**store, "bucket": "ray"}
    policy = json.dumps(bucket_policy("other"))
    user_props = {**store, "accessKey": "training", "secretKey": key, "policy": policy}
    assert bucket.read("ray", bucket_props).id == ""
    assert user.read("training", user_props).id == ""
    bucket.create(bucket_props)
    bucket.create(bucket_props)
    user.create(user_props)
    assert bucket.read("ray", bucket_props).id == "ray"
    assert user.read("training", user_props).id == "training"
    client = _client(store, "training", key)
    with pytest.raises(S3Error, match="AccessDenied"):
        client.put_object(bucket_name="ray", object_name="a", data=io.BytesIO(b"x"), length=1)
    wider = {**user_props, "policy": json.dumps(bucket_policy("ray"))}
    assert user.diff("training", user_props, wider).changes
    user.update("training", user_props, wider)
    client.put_object(bucket_name="ray", object_name="a", data=io.BytesIO(b"x"), length=1)

    bucket.delete("ray", bucket_props)
    user.delete("training", wider)
    user.delete("training", wider)
    with pytest.raises(S3Error, match="InvalidAccessKeyId"):
        client.get_object(bucket_name="ray", object_name="a")
    users = short_folder / "data" / ".minio.sys" / "config" / "iam" / "users"
    assert not list(users.glob("training/*"))

    again = start()
    assert bucket.create({**again, "bucket": "ray"}).id == "ray"
    root = _client(again, "root-user", again["rootPassword"])
    assert root.stat_object(bucket_name="ray", object_name="a").size == 1


def test_a_store_that_is_gone_has_nothing_to_remove(
    free_port: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gone = {
        "endpoint": f"127.0.0.1:{free_port()}",
        "rootUser": "root-user",
        "rootPassword": "x" * 20,
        "bucket": "ray",
        "accessKey": "training",
    }
    assert BucketProvider().read("ray", gone).id == ""
    assert StoreUserProvider().read("training", gone).id == ""
    StoreUserProvider().delete("training", gone)
    assert "MinIO is gone" in capsys.readouterr().err
