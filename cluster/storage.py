"""Where jobs keep their results, and how S3 clients of a service find it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from cluster.inputs import join

FOLDER = "storage"  # of dataDir, for the results of a stack without an object store
BUCKET = "ray"  # for jobs
REGION = "us-east-1"  # the default of all stores


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where jobs keep their results: a bucket, or a folder of this machine.

    Attributes:
        url: s3://<bucket> or file:///<folder>.
        endpoint: URL of the S3 API for users, "" for a folder.
        internal: host:port of the S3 API for other services, "" for a folder.
        bucket: name of the bucket, "" for a folder.
        access_key: of the user that may touch only that bucket; a secret, "" for a folder.
        metrics: path of the store's figures for Prometheus, by the name of its job; may be empty.
        metrics_token: bearer token that these ask for; a secret.
        needs: resources that have to exist before it can be used.
    """

    url: str
    endpoint: pulumi.Input[str] = ""
    internal: pulumi.Input[str] = ""
    bucket: str = ""
    access_key: pulumi.Input[str] = ""
    secret_key: pulumi.Input[str] = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    metrics_token: pulumi.Input[str] = ""
    needs: Sequence[pulumi.Resource] = ()


def environment(storage: Storage, credentials_file: str) -> dict[str, pulumi.Input[str]]:
    """Return the variables by which S3 clients of a service find the bucket; none for a folder.

    The file has `credentials`.
    """
    if not storage.bucket:
        return {}
    return {
        "AWS_SHARED_CREDENTIALS_FILE": credentials_file,
        "AWS_ENDPOINT_URL": join("http://", storage.internal),
        "AWS_REGION": REGION,
    }


def credentials(storage: Storage) -> pulumi.Output[str]:
    """Return the file of S3 clients that holds the keys to the bucket."""
    return pulumi.Output.secret(
        pulumi.Output.format(
            "[default]\naws_access_key_id = {0}\naws_secret_access_key = {1}\n",
            storage.access_key,
            storage.secret_key,
        )
    )
