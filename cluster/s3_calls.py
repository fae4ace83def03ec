"""Calls that every object store answers, from the arguments of its resources."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import urllib3
from minio import Minio
from minio.error import MinioAdminException, S3Error

from cluster import store_proof
from cluster.minio_admin import BucketArgs, RootArgs
from trainyard.access import kubectl
from trainyard.access.kubectl import KubectlError
from trainyard.access.ssh import Connection, HostKeyError, SshError, UnreachableError
from trainyard.access.ssh_run import forwarded

STARTING_SECONDS = 30.0  # MinIO answers its health check some time before its user store is ready
RETRY_SECONDS = 0.2
REQUEST_SECONDS = 10
LOST_SECONDS = 1.0  # after an answer that was lost

# The store or its machine is gone; another machine may have the address by now. Any other failure
# is an error: a store that refuses a call still has its bucket and its users.
NO_ANSWER = (urllib3.exceptions.HTTPError, UnreachableError, HostKeyError, KubectlError)
GONE = (urllib3.exceptions.HTTPError, SshError, KubectlError)  # for what is removed

T = TypeVar("T")
R = TypeVar("R", bound=RootArgs)


def ensure_bucket(args: BucketArgs) -> None:
    """Make the bucket, or keep the one that exists, in a store that refuses forged requests.

    Raises:
        ServiceError: it serves requests whose signature is forged.
    """
    with reached(args) as there:
        s3 = client(there)
        if not patiently(lambda: s3.bucket_exists(bucket_name=args.bucket)):
            s3.make_bucket(bucket_name=args.bucket)
        store_proof.prove(there.endpoint, args.bucket, args.rootUser, s3.remove_object)


def has_bucket(args: BucketArgs) -> bool:
    """Return whether the bucket is there; a store that does not answer has none."""

    def look(there: BucketArgs) -> bool:
        s3 = client(there, retries=0)
        return patiently(lambda: s3.bucket_exists(bucket_name=args.bucket))

    return bool(asked(args, look))


def asked(args: R, look: Callable[[R], T]) -> T | None:
    """Return the result of a look at a store; None if the store does not answer.

    It is asked twice: one lost answer does not mean that the store is gone. `look` takes the
    arguments with an endpoint that this machine reaches.
    """
    for pause in (LOST_SECONDS, None):
        try:
            with reached(args) as there:
                return look(there)
        except NO_ANSWER:
            if pause:
                time.sleep(pause)
    return None


@contextmanager
def reached(args: R) -> Iterator[R]:
    """Yield the arguments with an endpoint that this machine reaches."""
    if args.via is None:
        yield args
        return
    host, _, port = args.endpoint.rpartition(":")
    via = args.via
    way = (
        kubectl.forwarded(kubectl.Cluster.of(via), host, int(port))
        if "context" in via
        else forwarded(Connection.of(via), host, int(port))
    )
    with way as endpoint:
        yield replace(args, endpoint=endpoint)


def pool(retries: int) -> urllib3.PoolManager:
    """Return a pool that sends requests, with a time limit for each."""
    return urllib3.PoolManager(timeout=urllib3.Timeout(total=REQUEST_SECONDS), retries=retries)


def client(args: RootArgs, retries: int = 3) -> Minio:
    """Return an S3 client of the store's root."""
    return Minio(
        endpoint=args.endpoint,
        access_key=args.rootUser,
        secret_key=args.rootPassword,
        secure=False,
        http_client=pool(retries),
    )


def patiently(call: Callable[[], T]) -> T:
    """Repeat a call while the store says that it is still starting."""
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        try:
            return call()
        except (S3Error, MinioAdminException) as error:
            if "NotInitialized" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)
