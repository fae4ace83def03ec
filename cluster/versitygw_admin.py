"""Pulumi resources inside a running versitygw: a bucket, and the user that its policy names.

The root credentials that they need are secret inputs; nothing else receives them.
"""

from types import ModuleType
from typing import Any

import pulumi
from pulumi import dynamic

from cluster import late, minio_admin
from cluster.minio_admin import BucketProvider


class StoreUserProvider(minio_admin.StoreUserProvider):
    """A user of versitygw, who owns nothing and may do what the bucket's policy says."""

    title = "versitygw"

    def calls(self) -> ModuleType:
        """Return what does it."""
        return late.module("cluster.versitygw_calls")


class Bucket(dynamic.Resource, module="versitygw", name="Bucket"):
    """A bucket of a running versitygw.

    Attributes:
        bucket: its name.
    """

    bucket: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        props: dict[str, pulumi.Input[Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a bucket from endpoint (host:port), rootUser, rootPassword and bucket."""
        super().__init__(BucketProvider(), name, props, opts)


class StoreUser(dynamic.Resource, module="versitygw", name="User"):
    """A user of a running versitygw, and the policy of its bucket.

    Attributes:
        accessKey: of the user; a secret output.
    """

    accessKey: pulumi.Output[str]  # noqa: N815 (property names are camelCase in Pulumi states)

    def __init__(
        self,
        name: str,
        props: dict[str, pulumi.Input[Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a user from endpoint, root's keys, bucket, accessKey, secretKey, statements."""
        super().__init__(StoreUserProvider(), name, props, opts)
