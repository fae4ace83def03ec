"""One stack: a Ray training cluster, its object store and its monitoring."""

import pulumi

from cluster import secret, services
from cluster.ray_cluster import TOKEN_BYTES
from cluster.secret import Secret
from cluster.stack import Stack
from cluster.storage import Storage
from infra import checkout, config, shared_store, target, versions
from infra.hosts import local
from trainyard.access import outputs

name = pulumi.get_stack()
checkout.forget_salt(name)
settings = config.read(local.LocalHost.detect())
secret.rotated = settings.rotated
here = target.find(settings, name)
storage = Storage(url=f"file://{here.data}/storage")
if settings.store_from:
    storage = shared_store.of(settings.store_from, settings.bucket)
stack = Stack(
    runtime=here.runtime,
    settings=settings,
    services=here.services,
    head=settings.head,
    workers=here.workers,
    gpus=here.gpus or ((),) * len(here.workers),
    token=Secret("ray-token", TOKEN_BYTES).value,
    # Its own: users who may ask a model must not be able to run code on the cluster.
    serve_token=Secret("serve-token", TOKEN_BYTES).value,
    node_provider=here.node_provider,
    on_demand=here.on_demand,
    elastic=here.elastic,
    not_launched=here.not_launched,
    expires_at=here.expires_at,
    idle_token=here.idle_token,
    storage=storage,
    outputs={outputs.OBJECT_STORE_ENDPOINT: storage.endpoint},
)
for service in here.services:
    service.declare(stack)

pulumi.export(outputs.PROJECT, pulumi.get_project())
pulumi.export(outputs.STACK, name)
pulumi.export(outputs.STORAGE_URL, stack.storage.url)
pulumi.export(outputs.BUCKET, stack.storage.bucket)
pulumi.export(outputs.ACCESS_KEY, pulumi.Output.secret(stack.storage.access_key))
pulumi.export(outputs.SECRET_KEY, pulumi.Output.secret(stack.storage.secret_key))
pulumi.export(outputs.RAY_VERSION, versions.RAY)
pulumi.export(outputs.PYTHON_VERSION, here.python)
pulumi.export(outputs.NODES, stack.outputs[outputs.NODES])
for connection in outputs.CONNECTIONS:
    pulumi.export(connection, here.connections.get(connection, {}))
pulumi.export(outputs.EXPIRES_AT, here.expires_at)
pulumi.export(outputs.REQUESTS_FOLDER, here.requests_folder)
cluster_file = stack.outputs.get(outputs.RAY_CLUSTER_FILE, "")
pulumi.export(outputs.RAY_CLUSTER_FILE, pulumi.Output.secret(cluster_file))
pulumi.export(outputs.SERVICES, [endpoint.described for endpoint in services.ENDPOINTS])
for endpoint in services.ENDPOINTS:
    for output, hidden in endpoint.outputs.items():
        value = stack.outputs.get(output, "")
        pulumi.export(output, pulumi.Output.secret(value) if hidden else value)
