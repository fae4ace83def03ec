"""A bucket and a user in each real object store, which comes and goes with its data kept."""

import io
from typing import Any

import pytest
from minio import Minio
from minio.error import MinioAdminException, S3Error

from cluster import minio_admin, minio_store, object_store, store_kind, versitygw_admin
from cluster.minio_admin import BucketProvider
from cluster.versitygw_calls import AdminError
from tests import stores
from tests.stores import BareStore

pytestmark = pytest.mark.integration

USERS = {
    "minio": minio_admin.StoreUserProvider(),
    "versitygw": versitygw_admin.StoreUserProvider(),
}
KEY, SECRET = "a" * 20, "s" * 40


@pytest.fixture(params=sorted(object_store.STORES))
def name(request) -> str:
    found: str = request.param
    return found


def _client(props: dict[str, Any], access: str, secret: str) -> Minio:
    return Minio(endpoint=props["endpoint"], access_key=access, secret_key=secret, secure=False)


def _rights(name: str, bucket: str) -> dict[str, str]:
    if name == "minio":
        return {"policy": stores.text(minio_store.bucket_policy(bucket))}
    return {"statements": stores.text(store_kind.statements(bucket))}


def test_the_bucket_outlives_the_stack_and_the_user_does_not(name, build_store, tmp_path):
    kind, program = object_store.STORES[name], build_store(name)
    bucket, user = BucketProvider(), USERS[name]
    with stores.bare(kind, program, tmp_path, bucket=False) as store:
        root = store.props
        mine = {**root, "accessKey": KEY, "secretKey": SECRET, **_rights(name, "ray")}
        assert bucket.read("ray", root).id == ""
        assert user.read("x", mine).id == ""
        for _ in range(2):
            bucket.create(root)
            user.create(mine)
        assert bucket.read("ray", root).id == "ray"
        assert user.read("x", mine).id == "x"
        # A store that refuses is not gone: a refresh that said so would forget existing resources.
        locked_out = {"rootPassword": "r" * 40}
        with pytest.raises(S3Error, match=r"403|Forbidden|Denied|Match"):
            bucket.read("ray", {**root, **locked_out})
        with pytest.raises((S3Error, MinioAdminException, AdminError), match=r"Denied|Match"):
            user.read("x", {**mine, **locked_out})
        client = _client(root, KEY, SECRET)
        put = {"bucket_name": "ray", "object_name": "a", "length": 1}
        client.put_object(data=io.BytesIO(b"x"), **put)
        # Another key, as after a leak: the old one is void once nothing needs it.
        other = {**mine, "accessKey": "b" * 20, "secretKey": "t" * 40, "former": KEY}  # F43
        assert user.diff("x", mine, other).replaces == ["accessKey"]
        user.create(other)
        client.put_object(data=io.BytesIO(b"y"), **put)
        user.delete("x", mine)
        user.update("x", other, other)
        with pytest.raises(S3Error, match="InvalidAccessKeyId"):
            client.put_object(data=io.BytesIO(b"y"), **put)
        _client(root, "b" * 20, "t" * 40).put_object(data=io.BytesIO(b"z"), **put)
        user.delete("x", other)
        user.delete("x", other)
        bucket.delete("ray", root)
        with pytest.raises(S3Error, match="InvalidAccessKeyId"):
            _client(root, "b" * 20, "t" * 40).get_object(bucket_name="ray", object_name="a")
        store.kill()
        store.root = stores.new_keys()  # of the next stack
        stores.write_root(tmp_path / "files", store.root)
        store.start()
        again = store.props
        assert again["rootUser"] != root["rootUser"]
        assert bucket.create(again).id == "ray"
        client = _client(again, again["rootUser"], again["rootPassword"])
        assert client.get_object(bucket_name="ray", object_name="a").read() == b"z"


def test_a_store_does_not_take_over_anothers_data(name, build_store, tmp_path):
    (other,) = set(object_store.STORES) - {name}
    with stores.bare(object_store.STORES[name], build_store(name), tmp_path) as store:
        store.s3.put_object(Bucket="ray", Key="a", Body=b"kept")
        store.kill()
        with pytest.raises(AssertionError, match=r"Nothing was changed\. .*objectStore"):
            BareStore(
                object_store.STORES[other], build_store(other), tmp_path, files=tmp_path / "f"
            )
        store.start()
        assert store.s3.get_object(Bucket="ray", Key="a")["Body"].read() == b"kept"
        assert [b["Name"] for b in store.s3.list_buckets()["Buckets"]] == ["ray"]
