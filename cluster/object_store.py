"""The object store: one program, one bucket, and a user that may touch only that bucket."""

from functools import partial

import pulumi

from cluster import minio_store, versitygw_store
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.minio_admin import BucketArgs, RootArgs
from cluster.secret import KEY, Secret
from cluster.storage import BUCKET, Storage
from cluster.store_kind import Keys, StoreKind
from trainyard.access import outputs

STORES = {kind.name: kind for kind in (versitygw_store.KIND, minio_store.KIND)}
KEY_BYTES, SECRET_BYTES = 10, 20  # MinIO takes at most 20 and 40 characters


class ObjectStore(pulumi.ComponentResource):
    """A store with its bucket and users.

    All keys are drawn at random, a different pair for each user. Root's reach the program as files,
    and leave this component only as secret inputs of the resources that it makes in the store.

    Attributes:
        url: s3://<bucket>.
    """

    url: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        kind: StoreKind,
        stack: Stack,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:cluster:ObjectStore", name, None, opts)
        runtime = stack.runtime
        port, console_port = stack.port("objectStorePort"), stack.port("objectStoreConsolePort")
        child = pulumi.ResourceOptions(parent=self)
        root = _keys(f"{name}-root", child)
        training = _keys(f"{name}-training", child)
        program = runtime.place(kind.service(runtime, port, console_port, root), child)
        reached = RootArgs(
            endpoint=runtime.published(kind.name, port),
            rootUser=root.access,
            rootPassword=root.secret,
            via=runtime.via,
        )
        inside = pulumi.ResourceOptions(parent=self, depends_on=[program])
        # Never deleted: the provider keeps it, since it holds results of training.
        bucket = kind.bucket(f"{name}-bucket", BucketArgs(**vars(reached), bucket=BUCKET), inside)
        after = pulumi.ResourceOptions(parent=self, depends_on=[program, bucket])
        user = kind.training_user(f"{name}-training-user", reached, BUCKET, training, after)
        metrics_token: pulumi.Input[str] = ""
        if kind.metrics:
            monitoring = _keys(f"{name}-monitoring", child)
            metrics_token = kind.metrics_token(
                f"{name}-monitoring-user", reached, monitoring, inside
            )
        stack.storage = Storage(
            url=f"s3://{BUCKET}",
            endpoint=join("http://", runtime.public(kind.name, port)),
            internal=runtime.address(kind.name, port),
            bucket=BUCKET,
            access_key=pulumi.Output.secret(training.access),
            secret_key=pulumi.Output.secret(training.secret),
            metrics=kind.metrics,
            metrics_token=metrics_token,
            needs=[program, bucket, user],
        )
        stack.outputs[ENDPOINT.url] = stack.storage.endpoint
        self.url = pulumi.Output.from_input(stack.storage.url)
        self.register_outputs({"url": self.url})


def _keys(name: str, opts: pulumi.ResourceOptions) -> Keys:
    key = Secret(f"{name}{KEY}", KEY_BYTES, opts)
    return Keys(access=key.value, secret=Secret(name, SECRET_BYTES, opts).value, former=key.former)


ENDPOINT = Endpoint(title="object store", url=outputs.OBJECT_STORE_ENDPOINT)
DESCRIPTORS = {
    kind.name: Descriptor(
        program=kind.name,
        declare=partial(ObjectStore, "object-store", kind),
        source=Source.BUILT,
        ports=(
            PortSetting("objectStorePort", 9000, "S3 API of the object store"),
            PortSetting("objectStoreConsolePort", 9001, "Web console of the object store"),
        ),
        limit=Limit(memory_mib=4096, processes=2048),
        shared=True,
        endpoints=(ENDPOINT,),
    )
    for kind in STORES.values()
}
