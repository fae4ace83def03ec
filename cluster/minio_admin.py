"""Pulumi resources inside a running MinIO: a bucket, and a user with one policy.

The root credentials that they need are secret inputs; nothing else receives them.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pulumi
import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, S3Error
from minio.minioadmin import MinioAdmin
from pulumi import dynamic

STARTING_SECONDS = 30.0  # MinIO answers its health check some time before its user store is ready
RETRY_SECONDS = 0.2

T = TypeVar("T")


class BucketProvider(dynamic.ResourceProvider):
    """Makes a bucket once. Never deletes one: it holds the results of training."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another bucket is another resource; another address is the same bucket."""
        replaces = ["bucket"] if _olds["bucket"] != _news["bucket"] else []
        return dynamic.DiffResult(changes=_changed(_olds, _news), replaces=replaces)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Make the bucket, or keep the one that exists."""
        client = _client(props)
        if not _patiently(lambda: client.bucket_exists(bucket_name=props["bucket"])):
            client.make_bucket(bucket_name=props["bucket"])
        return dynamic.CreateResult(props["bucket"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the bucket is there."""
        try:
            there = _client(props, retries=0).bucket_exists(bucket_name=props["bucket"])
        except (urllib3.exceptions.HTTPError, S3Error):
            there = False
        return dynamic.ReadResult(id_, props) if there else dynamic.ReadResult("", {})

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Take over a new address or new root credentials."""
        return dynamic.UpdateResult(self.create(_news).outs)


class StoreUserProvider(dynamic.ResourceProvider):
    """A MinIO user with a policy of its own, and no other."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another access key is another user."""
        replaces = ["accessKey"] if _olds["accessKey"] != _news["accessKey"] else []
        return dynamic.DiffResult(changes=_changed(_olds, _news), replaces=replaces)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Write policy and user; both calls overwrite what an earlier attempt left."""
        admin, key = _admin(props), props["accessKey"]
        _patiently(lambda: admin.policy_add(policy_name=key, policy=json.loads(props["policy"])))
        _patiently(lambda: admin.user_add(key, props["secretKey"]))
        _patiently(lambda: admin.policy_set(key, user=key))
        return dynamic.CreateResult(key, props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the user is there with its policy."""
        try:
            user = json.loads(_admin(props, retries=0).user_info(id_))
        except (urllib3.exceptions.HTTPError, MinioAdminException):
            return dynamic.ReadResult("", {})
        if user.get("policyName") != id_:
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, props)

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Write policy and user anew."""
        return dynamic.UpdateResult(self.create(_news).outs)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove user and policy; a MinIO that is gone has neither."""
        admin = _admin(_props, retries=0)
        for remove in (admin.user_remove, admin.policy_remove):
            try:
                remove(_id)
            except urllib3.exceptions.HTTPError:
                sys.stderr.write(f"MinIO is gone: nothing to remove of its user {_id}\n")
                return
            except MinioAdminException as error:
                if "NoSuch" not in str(error):
                    raise


class Bucket(dynamic.Resource, module="minio", name="Bucket"):
    """A bucket of a running MinIO.

    Attributes:
        bucket: its name.
    """

    bucket: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        props: dict[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a bucket from endpoint (host:port), rootUser, rootPassword and bucket."""
        super().__init__(BucketProvider(), name, props, opts)


class StoreUser(dynamic.Resource, module="minio", name="User"):
    """A user of a running MinIO, and its policy of the same name.

    Attributes:
        accessKey: name of the user.
    """

    accessKey: pulumi.Output[str]  # noqa: N815 (property names are camelCase in Pulumi states)

    def __init__(
        self,
        name: str,
        props: dict[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a user from endpoint, rootUser, rootPassword, accessKey, secretKey and policy."""
        super().__init__(StoreUserProvider(), name, props, opts)


def _changed(olds: dict[str, Any], news: dict[str, Any]) -> bool:
    return any(olds.get(key) != value for key, value in news.items() if key != "__provider")


def _pool(retries: int) -> urllib3.PoolManager:
    return urllib3.PoolManager(timeout=urllib3.Timeout(total=10), retries=retries)


def _client(props: dict[str, Any], retries: int = 3) -> Minio:
    return Minio(
        endpoint=props["endpoint"],
        access_key=props["rootUser"],
        secret_key=props["rootPassword"],
        secure=False,
        http_client=_pool(retries),
    )


def _admin(props: dict[str, Any], retries: int = 3) -> MinioAdmin:
    return MinioAdmin(
        endpoint=props["endpoint"],
        credentials=StaticProvider(props["rootUser"], props["rootPassword"]),
        secure=False,
        http_client=_pool(retries),
    )


def _patiently(call: Callable[[], T]) -> T:
    """Repeat a call while MinIO says that it is still starting."""
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        try:
            return call()
        except (S3Error, MinioAdminException) as error:
            if "NotInitialized" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)
