"""The object store: one program, one bucket, and a user that may touch only that bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster import minio_store, versitygw_store
from cluster.inputs import join
from cluster.secret import Secret
from cluster.service import Runtime
from cluster.store_kind import Keys, StoreKind

STORES = {kind.name: kind for kind in (versitygw_store.KIND, minio_store.KIND)}
REGION = "us-east-1"  # the default of all of them
KEY_BYTES, SECRET_BYTES = 10, 20  # MinIO takes at most 20 and 40 characters


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where jobs keep their results: a bucket, or a folder of this machine.

    Attributes:
        url: s3://<bucket> or file:///<folder>.
        endpoint: URL of the S3 API for users, "" for a folder.
        internal: host:port of the S3 API for other services, "" for a folder.
        bucket: name of the bucket, "" for a folder.
        access_key: of the user that may touch only that bucket; a secret, "" for a folder.
        secret_key: its secret, "" for a folder.
        metrics: path of the store's figures for Prometheus, by the name of its job; may be empty.
        metrics_token: bearer token that these ask for; a secret.
    """

    url: str
    endpoint: pulumi.Input[str] = ""
    internal: pulumi.Input[str] = ""
    bucket: str = ""
    access_key: pulumi.Input[str] = ""
    secret_key: pulumi.Input[str] = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    metrics_token: pulumi.Input[str] = ""


@dataclass(frozen=True, kw_only=True)
class ObjectStoreArgs:
    """Arguments of an object store.

    Attributes:
        kind: which program.
        runtime: where it runs.
        bucket: name of the bucket.
        port: TCP port of the S3 API.
        console_port: TCP port of the web console.
    """

    kind: StoreKind
    runtime: Runtime
    bucket: str
    port: int
    console_port: int

    def __post_init__(self) -> None:
        if self.port == self.console_port:
            raise ValueError(f"S3 API and console cannot both listen on port {self.port}")


class ObjectStore(pulumi.ComponentResource):
    """A store with its bucket and users.

    All keys are drawn at random, another pair for each user. Those of root reach the program as
    files, and leave this component only as secret inputs of the resources that it makes inside.

    Attributes:
        url: s3://<bucket>.
    """

    url: pulumi.Output[str]
    storage: Storage

    def __init__(
        self, name: str, args: ObjectStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:ObjectStore", name, None, opts)
        kind, runtime = args.kind, args.runtime
        child = pulumi.ResourceOptions(parent=self)
        root = _keys(f"{name}-root", child)
        training = _keys(f"{name}-training", child)
        program = runtime.place(kind.service(runtime, args.port, args.console_port, root), child)
        admin: dict[str, pulumi.Input[Any]] = {
            "endpoint": runtime.published(kind.name, args.port),
            "rootUser": root.access,
            "rootPassword": root.secret,
        }
        if runtime.via is not None:
            admin["via"] = runtime.via
        inside = pulumi.ResourceOptions(parent=self, depends_on=[program])
        # Never deleted: the provider keeps it, whatever it holds are results of training.
        bucket = kind.bucket(f"{name}-bucket", {**admin, "bucket": args.bucket}, inside)
        after = pulumi.ResourceOptions(parent=self, depends_on=[program, bucket])
        kind.training(name, admin, args.bucket, training, after)
        metrics_token: pulumi.Input[str] = ""
        sign = kind.token
        if kind.monitoring is not None and sign is not None:
            monitoring = _keys(f"{name}-monitoring", child)
            kind.monitoring(name, admin, monitoring, inside)
            keys = pulumi.Output.all(monitoring.access, monitoring.secret)
            metrics_token = pulumi.Output.secret(keys.apply(lambda known: sign(*known)))
        self.storage = Storage(
            url=f"s3://{args.bucket}",
            endpoint=join("http://", runtime.public(kind.name, args.port)),
            internal=runtime.address(kind.name, args.port),
            bucket=args.bucket,
            access_key=pulumi.Output.secret(training.access),
            secret_key=pulumi.Output.secret(training.secret),
            metrics=kind.metrics,
            metrics_token=metrics_token,
        )
        self.url = pulumi.Output.from_input(self.storage.url)
        self.register_outputs({"url": self.url})


def environment(storage: Storage, credentials_file: str) -> dict[str, pulumi.Input[str]]:
    """Return what S3 clients of a service find the bucket by; nothing for a folder.

    Args:
        storage: the bucket.
        credentials_file: path of a file with `credentials`.
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


def _keys(name: str, opts: pulumi.ResourceOptions) -> Keys:
    return Keys(
        access=Secret(f"{name}-key", KEY_BYTES, opts).value,
        secret=Secret(name, SECRET_BYTES, opts).value,
    )
