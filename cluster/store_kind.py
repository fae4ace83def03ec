"""The differences between object stores: each kind is described in a module of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi

from cluster.minio_admin import Bucket, RootArgs
from cluster.service import Port, Runtime, Service

BUCKET_ACTIONS = ("s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads")
OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)


def statements(bucket: str) -> list[dict[str, Any]]:
    """Return all that the training user may do: in its bucket, and with the objects there."""
    return [
        {"Effect": "Allow", "Action": [*actions], "Resource": f"arn:aws:s3:::{bucket}{below}"}
        for actions, below in ((BUCKET_ACTIONS, ""), (OBJECT_ACTIONS, "/*"))
    ]


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The random, secret keys that sign the requests of a store's user.

    Attributes:
        former: access key before the last rotation; None if there was none.
    """

    access: pulumi.Input[str]
    secret: pulumi.Input[str]
    former: pulumi.Input[str | None] = None


class StoreKind(Protocol):
    """One program that speaks S3.

    Attributes:
        name: name of the program, of its service, and of its choice in the setting objectStore.
        title: its name for users.
        metrics: path of figures for Prometheus, by the name of its job; {} where it has none.
    """

    name: str
    title: str
    bucket: type[Bucket]
    metrics: Mapping[str, str]

    def service(self, runtime: Runtime, port: int, console_port: int, root: Keys) -> Service:
        """Return the service; the keys of its root reach it as files."""

    def training_user(
        self, name: str, root: RootArgs, bucket: str, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Resource:
        """Declare the user that may touch only the bucket."""

    def metrics_token(
        self, name: str, root: RootArgs, keys: Keys, opts: pulumi.ResourceOptions
    ) -> pulumi.Output[str]:
        """Declare the user that may only read figures; return the bearer token for these."""


def ports(port: int, console_port: int) -> list[Port]:
    """Return the ports of a store: its S3 API and its console."""
    return [
        Port(number=port, setting="objectStorePort", published=True),
        Port(number=console_port, setting="objectStoreConsolePort", published=True),
    ]
