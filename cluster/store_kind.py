"""The differences between object stores: each kind is described in a module of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.service import Runtime, Service

# All that the training user may do: in its bucket, and with the objects there.
BUCKET_ACTIONS = ("s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads")
OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys with which a user of a store signs requests; both are random and secret.

    Attributes:
        access: access key.
        secret: secret key.
        former: access key before the last rotation; None if there was none.
    """

    access: pulumi.Input[str]
    secret: pulumi.Input[str]
    former: pulumi.Input[str | None] = None


@dataclass(frozen=True, kw_only=True)
class StoreKind:
    """One program that speaks S3.

    Attributes:
        name: name of the program, of its service, and of its choice in the setting objectStore.
        title: its name for users.
        service: returns the service, from the runtime, both ports and the keys of its root.
        bucket: resource of a bucket.
        training: declares the user that may touch only the bucket, from the name of the store's
            component, how its root is reached, the bucket, the user's keys, and options.
        monitoring: the same for a user that may only read figures; None where Prometheus cannot.
        metrics: path of figures for Prometheus, by the name of its job.
        token: returns the bearer token for these, from both keys of the monitoring user.
    """

    name: str
    title: str
    service: Callable[[Runtime, int, int, Keys], Service]
    bucket: Callable[..., pulumi.Resource]
    training: Callable[
        [str, Mapping[str, pulumi.Input[Any]], str, Keys, pulumi.ResourceOptions],
        pulumi.Resource,
    ]
    monitoring: (
        Callable[[str, Mapping[str, pulumi.Input[Any]], Keys, pulumi.ResourceOptions], None] | None
    ) = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    token: Callable[[str, str], str] | None = None
