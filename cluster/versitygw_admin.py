"""Pulumi resources inside a running versitygw: a bucket, and the user that its policy names.

The root credentials that they need are secret inputs; nothing else receives them.
"""

from types import ModuleType

from cluster import late, minio_admin


class BucketProvider(minio_admin.BucketProvider):
    """A bucket is made like one of MinIO."""


class StoreUserProvider(minio_admin.StoreUserProvider):
    """A user of versitygw, who owns nothing and may do what the bucket's policy says."""

    title = "versitygw"

    def calls(self) -> ModuleType:
        """Return the module with the calls."""
        return late.module("cluster.versitygw_calls")


class Bucket(minio_admin.Bucket, module="versitygw", name="Bucket"):
    """A bucket of a running versitygw."""

    _kind = BucketProvider


class StoreUser(minio_admin.StoreUser, module="versitygw", name="User"):
    """A user of a running versitygw, from root's keys, bucket, accessKey, secretKey, statements."""

    _kind = StoreUserProvider
