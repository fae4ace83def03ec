"""Pulumi resources inside a running versitygw: a bucket, and the user that its policy names.

The root credentials that they need are secret inputs; nothing else receives them.
"""

from cluster import minio_admin
from cluster.provider import Given


class StoreUserArgs(minio_admin.UserArgs):
    """Arguments of a user of versitygw.

    Attributes:
        bucket: whose policy names it.
        former: its access key before the last rotation; None if there was none.
        statements: of that policy without their principal, as JSON.
    """

    bucket: str
    former: Given[str | None] = None
    statements: str


class BucketProvider(minio_admin.BucketProvider):
    """A bucket is made like one of MinIO."""


class StoreUserProvider(minio_admin.UserProvider[StoreUserArgs]):
    """A user of versitygw, who owns nothing and may do what the bucket's policy says."""

    title = "versitygw"
    module = "cluster.versitygw_calls"


class Bucket(minio_admin.Bucket, module="versitygw", name="Bucket"):
    """A bucket of a running versitygw."""

    _kind = BucketProvider


class StoreUser(minio_admin.StoreUser, module="versitygw", name="User"):
    """A user of a running versitygw."""

    _kind = StoreUserProvider
