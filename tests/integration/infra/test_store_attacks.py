"""Attacks on the object stores that a stack can start."""

import secrets
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import urllib3
from botocore import UNSIGNED
from botocore.exceptions import ClientError
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin
from pyarrow import fs

from cluster import (
    minio_admin,
    minio_store,
    object_store,
    store_kind,
    store_proof,
    versitygw_admin,
    versitygw_calls,
)
from cluster.store_kind import Keys
from tests import stores

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OTHER = "other"
REFUSED = {400, 401, 403}


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """A store with the bucket of a stack, a private one, and the training user."""

    kind: str
    root: dict[str, Any]
    training: Keys

    @property
    def url(self) -> str:
        return f"http://{self.root['endpoint']}"

    def s3(self, keys: Keys, **more: Any) -> Any:
        return stores.client(self.url, keys, **more)

    def held(self) -> list[tuple[str, str, str]]:
        """Its whole content, as its root sees it."""
        s3 = self.s3(Keys(access=self.root["rootUser"], secret=self.root["rootPassword"]))
        return [
            (bucket["Name"], item["Key"], item["ETag"])
            for bucket in s3.list_buckets()["Buckets"]
            for item in s3.list_objects_v2(Bucket=bucket["Name"]).get("Contents", [])
        ]


@pytest.fixture(scope="module", params=sorted(object_store.STORES))
def store(request, build_store, tmp_path_factory) -> Iterator[Attacked]:
    name, folder = request.param, tmp_path_factory.mktemp("store")
    with stores.bare(object_store.STORES[name], build_store(name), folder, bucket=False) as bare:
        yield _furnish(name, bare.props)


def _furnish(name: str, root: dict[str, Any]) -> Attacked:
    """Make a stack's objects inside of its store, by the same resources."""
    minio_admin.BucketProvider().create(root)  # proves that forged requests are refused
    training = stores.new_keys()
    props = {**root, "accessKey": training.access, "secretKey": training.secret}
    if name == "minio":
        policy = minio_store.bucket_policy(root["bucket"])
        minio_admin.StoreUserProvider().create({**props, "policy": stores.text(policy)})
    else:
        statements = store_kind.statements(root["bucket"])
        versitygw_admin.StoreUserProvider().create({**props, "statements": stores.text(statements)})
    made = Attacked(kind=name, root=root, training=training)
    s3 = made.s3(Keys(access=root["rootUser"], secret=root["rootPassword"]))
    s3.create_bucket(Bucket=OTHER)
    s3.put_object(Bucket=OTHER, Key="theirs", Body=b"theirs")
    s3.put_object(Bucket=root["bucket"], Key="ours", Body=b"ours")
    return made


@pytest.fixture
def unchanged(store) -> Iterator[None]:
    """A test's attempts write nothing."""
    before = store.held()
    assert {(bucket, key) for bucket, key, _ in before} >= {(OTHER, "theirs"), ("ray", "ours")}
    yield
    assert store.held() == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("authorization", [None, "", "x", "AWS4-HMAC-SHA256 x"])
@pytest.mark.parametrize("advisory", store_proof.ADVISORIES)
def test_requests_with_a_forged_signature(store, advisory, authorization):  # F36 F41
    pool = urllib3.PoolManager(retries=0, timeout=30)
    for access in (store.root["rootUser"], store.training.access):
        for bucket in ("ray", OTHER):
            for name in ("ours" if bucket == "ray" else "theirs", "new"):
                target, headers, body = store_proof.ADVISORIES[advisory](bucket, name, str(access))
                if authorization is not None:
                    headers["Authorization"] = authorization
                answer = pool.request("PUT", store.url + target, headers=headers, body=body)
                assert answer.status in REFUSED, answer.data


@pytest.mark.usefixtures("unchanged")
def test_a_part_of_an_upload_with_a_forged_signature(store):  # F36 F41
    s3 = store.s3(store.training)
    upload = s3.create_multipart_upload(Bucket="ray", Key="cut")["UploadId"]
    forge = store_proof.ADVISORIES["CVE-2026-40344"]
    target, headers, body = forge("ray", "cut", str(store.training.access))
    query = urllib.parse.urlencode({"partNumber": 1, "uploadId": upload})
    pool = urllib3.PoolManager(retries=0, timeout=30)
    answer = pool.request("PUT", f"{store.url}{target}&{query}", headers=headers, body=body)
    assert answer.status in REFUSED, answer.data
    assert "Parts" not in s3.list_parts(Bucket="ray", Key="cut", UploadId=upload)
    s3.abort_multipart_upload(Bucket="ray", Key="cut", UploadId=upload)


def _refused(attempt: Callable[[], Any]) -> None:
    with pytest.raises(ClientError) as raised:
        attempt()
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "who", ["anonymous", "wrong secret", "minioadmin", "trainyard-root", "training", "monitoring"]
)
def test_others_get_nothing(store, who):  # F36
    access = store.training.access if who == "wrong secret" else who
    more = {"signature_version": UNSIGNED} if who == "anonymous" else {}
    s3 = store.s3(Keys(access=access, secret=who), **more)
    for at in ({"Bucket": "ray", "Key": "ours"}, {"Bucket": OTHER, "Key": "theirs"}):
        _refused(partial(s3.list_objects_v2, Bucket=at["Bucket"]))
        _refused(partial(s3.get_object, **at))
        _refused(partial(s3.put_object, **at, Body=b"x"))
        _refused(partial(s3.delete_object, **at))


@pytest.mark.usefixtures("unchanged")
def test_the_training_user_reaches_no_other_bucket_and_no_settings(store):  # F36
    s3 = store.s3(store.training)
    theirs = {"Bucket": OTHER, "Key": "theirs"}
    public = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["*"]},
                "Action": ["s3:GetObject"],
                "Resource": ["arn:aws:s3:::ray/*"],
            }
        ],
    }
    for attempt in (
        lambda: s3.list_objects_v2(Bucket=OTHER),
        lambda: s3.get_object(**theirs),
        lambda: s3.put_object(**theirs, Body=b"x"),
        lambda: s3.delete_object(**theirs),
        lambda: s3.copy_object(Bucket="ray", Key="copy", CopySource=theirs),
        lambda: s3.create_bucket(Bucket="mine"),
        lambda: s3.delete_bucket(Bucket="ray"),
        lambda: s3.put_bucket_policy(Bucket="ray", Policy=stores.text(public)),
        lambda: s3.put_bucket_versioning(
            Bucket="ray", VersioningConfiguration={"Status": "Enabled"}
        ),
    ):
        _refused(attempt)
    assert OTHER not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}


@pytest.mark.usefixtures("unchanged")
def test_the_training_user_administers_nothing(store):  # F36
    access, secret = str(store.training.access), str(store.training.secret)
    if store.kind == "minio":
        admin = MinioAdmin(
            endpoint=store.root["endpoint"],
            credentials=StaticProvider(access, secret),
            secure=False,
        )
        for call in (
            admin.info,
            admin.user_list,
            lambda: admin.user_add("evil", "evil-secret"),
            lambda: admin.add_service_account(policy={"Version": "2012-10-17", "Statement": []}),
        ):
            with pytest.raises(MinioAdminException, match=r"403|AccessDenied"):
                call()
        return
    as_training = SimpleNamespace(**{**store.root, "rootUser": access, "rootPassword": secret})
    for target in (
        "list-users",
        "list-buckets",
        "create-user",
        f"update-user?access={access}",
        f"delete-user?access={access}",
        f"change-bucket-owner?bucket=ray&owner={access}",
        "mine/create",
    ):
        assert versitygw_calls._call(as_training, target).status == 403


def test_what_the_clients_of_jobs_send_goes_on_working(store, tmp_path):
    s3 = store.s3(store.training)
    big = tmp_path / "big"
    big.write_bytes(secrets.token_bytes(9 * 1024 * 1024))  # boto3 sends this in parts
    boto3.s3.transfer.S3Transfer(s3).upload_file(str(big), "ray", "a/big")
    assert s3.get_object(Bucket="ray", Key="a/big")["Body"].read() == big.read_bytes()
    first = s3.get_object(Bucket="ray", Key="a/big", Range="bytes=0-9")
    assert first["Body"].read() == big.read_bytes()[:10]
    if store.kind == "versitygw":
        # It may answer before it has read the last bytes of pyarrow's uploads. They were taken for
        # the connection's next request: 48 of 17,000 uploads failed.
        assert first["ResponseMetadata"]["HTTPHeaders"]["connection"] == "close"
    # Over http pyarrow sends its payload unsigned, with a trailer and an Authorization header.
    arrow = fs.S3FileSystem(
        access_key=str(store.training.access),
        secret_key=str(store.training.secret),
        endpoint_override=store.root["endpoint"],
        scheme="http",
    )
    for size in (5, 9 * 1024 * 1024):
        content = secrets.token_bytes(size)
        with arrow.open_output_stream(f"ray/b/{size}") as out:
            out.write(content)
        with arrow.open_input_stream(f"ray/b/{size}") as back:
            assert back.read() == content
    found = arrow.get_file_info(fs.FileSelector("ray/b", recursive=True))
    assert {info.base_name for info in found if info.is_file} == {"5", str(9 * 1024 * 1024)}
    assert arrow.get_file_info("ray/none").type == fs.FileType.NotFound
    s3.delete_objects(
        Bucket="ray",
        Delete={"Objects": [{"Key": key} for key in ("a/big", "b/5", f"b/{9 * 1024 * 1024}")]},
    )
    left = s3.list_objects_v2(Bucket="ray").get("Contents", [])
    assert [item["Key"] for item in left if not item["Key"].endswith("/")] == ["ours"]


@pytest.mark.usefixtures("unchanged")
def test_the_proof_leaves_nothing(store):
    store_proof.prove(store.root["endpoint"], "ray", store.root["rootUser"], pytest.fail)
