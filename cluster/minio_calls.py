"""Calls to a running MinIO, from the properties that its resources hold.

Properties: endpoint (host:port), rootUser, rootPassword; bucket, or accessKey, secretKey, policy;
via (of another machine that reaches the endpoint, as `cluster.ssh.Connection.of` takes it).
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, S3Error
from minio.minioadmin import MinioAdmin

from cluster.ssh import Connection, SshError, forwarded

STARTING_SECONDS = 30.0  # MinIO answers its health check some time before its user store is ready
RETRY_SECONDS = 0.2

T = TypeVar("T")


def ensure_bucket(props: dict[str, Any]) -> None:
    """Make the bucket, or keep the one that exists."""
    with _reached(props) as reached:
        client = _client(reached)
        if not _patiently(lambda: client.bucket_exists(bucket_name=props["bucket"])):
            client.make_bucket(bucket_name=props["bucket"])


def has_bucket(props: dict[str, Any]) -> bool:
    """Return whether the bucket is there; a MinIO that does not answer has none."""
    try:
        with _reached(props) as reached:
            return _client(reached, retries=0).bucket_exists(bucket_name=props["bucket"])
    except (urllib3.exceptions.HTTPError, S3Error, SshError):
        return False


def write_user(props: dict[str, Any]) -> None:
    """Write policy and user; both calls overwrite what an earlier attempt left."""
    key = props["accessKey"]
    with _reached(props) as reached:
        admin = _admin(reached)
        _patiently(lambda: admin.policy_add(policy_name=key, policy=json.loads(props["policy"])))
        _patiently(lambda: admin.user_add(key, props["secretKey"]))
        _patiently(lambda: admin.policy_set(key, user=key))


def has_user(props: dict[str, Any], key: str) -> bool:
    """Return whether the user is there with its policy."""
    try:
        with _reached(props) as reached:
            user = json.loads(_admin(reached, retries=0).user_info(key))
    except (urllib3.exceptions.HTTPError, MinioAdminException, SshError):
        return False
    return bool(user.get("policyName") == key)


def remove_user(props: dict[str, Any], key: str) -> bool:
    """Remove user and policy.

    Returns:
        False if MinIO does not answer: one that is gone has neither.
    """
    try:
        with _reached(props) as reached:
            admin = _admin(reached, retries=0)
            for remove in (admin.user_remove, admin.policy_remove):
                try:
                    remove(key)
                except MinioAdminException as error:
                    if "NoSuch" not in str(error):
                        raise
    except (urllib3.exceptions.HTTPError, SshError):
        return False
    return True


@contextmanager
def _reached(props: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the properties with an endpoint that this machine reaches."""
    if "via" not in props:
        yield props
        return
    host, _, port = props["endpoint"].rpartition(":")
    with forwarded(Connection.of(props["via"]), host, int(port)) as endpoint:
        yield {**props, "endpoint": endpoint}


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
