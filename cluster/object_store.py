"""The object store: one program, one bucket, and a user that may touch only that bucket."""

from dataclasses import dataclass
from functools import partial

import pulumi

from cluster import minio_store, versitygw_store
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.minio_admin import RootArgs
from cluster.secret import KEY, Secret
from cluster.service import Runtime
from cluster.storage import Storage
from cluster.store_kind import Keys, StoreKind
from trainyard.access import outputs

STORES = {kind.name: kind for kind in (versitygw_store.KIND, minio_store.KIND)}
KEY_BYTES, SECRET_BYTES = 10, 20  # MinIO takes at most 20 and 40 characters


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

    All keys are drawn at random, a different pair for each user. Root's reach the program as files,
    and leave this component only as secret inputs of the resources that it makes in the store.

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
        reached = RootArgs(
            endpoint=runtime.published(kind.name, args.port),
            rootUser=root.access,
            rootPassword=root.secret,
            via=runtime.via,
        )
        inside = pulumi.ResourceOptions(parent=self, depends_on=[program])
        # Never deleted: the provider keeps it, since it holds results of training.
        bucket = kind.bucket(f"{name}-bucket", reached, args.bucket, inside)
        after = pulumi.ResourceOptions(parent=self, depends_on=[program, bucket])
        user = kind.training_user(f"{name}-training-user", reached, args.bucket, training, after)
        metrics_token: pulumi.Input[str] = ""
        if kind.metrics:
            monitoring = _keys(f"{name}-monitoring", child)
            metrics_token = kind.metrics_token(
                f"{name}-monitoring-user", reached, monitoring, inside
            )
        self.storage = Storage(
            url=f"s3://{args.bucket}",
            endpoint=join("http://", runtime.public(kind.name, args.port)),
            internal=runtime.address(kind.name, args.port),
            bucket=args.bucket,
            access_key=pulumi.Output.secret(training.access),
            secret_key=pulumi.Output.secret(training.secret),
            metrics=kind.metrics,
            metrics_token=metrics_token,
            needs=[program, bucket, user],
        )
        self.url = pulumi.Output.from_input(self.storage.url)
        self.register_outputs({"url": self.url})


def _keys(name: str, opts: pulumi.ResourceOptions) -> Keys:
    key = Secret(f"{name}{KEY}", KEY_BYTES, opts)
    return Keys(access=key.value, secret=Secret(name, SECRET_BYTES, opts).value, former=key.former)


def declare(kind: StoreKind, stack: Stack) -> None:
    """Declare an object store of a stack."""
    args = ObjectStoreArgs(
        kind=kind,
        runtime=stack.runtime,
        bucket=stack.settings.bucket,
        port=stack.port("objectStorePort"),
        console_port=stack.port("objectStoreConsolePort"),
    )
    stack.storage = ObjectStore("object-store", args).storage
    stack.outputs[ENDPOINT.url] = stack.storage.endpoint


ENDPOINT = Endpoint(title="object store", url=outputs.OBJECT_STORE_ENDPOINT)
DESCRIPTORS = {
    kind.name: Descriptor(
        program=kind.name,
        declare=partial(declare, kind),
        source=Source.BUILT,
        ports=(
            PortSetting(
                key="objectStorePort", default=9000, description="S3 API of the object store"
            ),
            PortSetting(
                key="objectStoreConsolePort",
                default=9001,
                description="Web console of the object store",
            ),
        ),
        limit=Limit(memory_mib=4096, processes=2048),
        shared=True,
        endpoints=(ENDPOINT,),
    )
    for kind in STORES.values()
}
