"""One stack: a Ray training cluster, its object store and its monitoring."""

import pulumi

from cluster import ray_node, secret, services
from infra.machines import local
from infra.operate import checkout
from infra.places import target
from infra.settings import config, shared_store, versions
from trainyard.access import outputs

name = pulumi.get_stack()
checkout.forget_salt(name)
settings = config.read(local.LocalHost.detect())
secret.rotated = settings.rotated
stack = target.find(settings, name)
if settings.store_from:
    stack.storage = shared_store.of(settings.store_from)
stack.outputs[outputs.OBJECT_STORE_ENDPOINT] = stack.storage.endpoint
for service in stack.services:
    service.declare(stack)

pulumi.export(outputs.PROJECT, pulumi.get_project())
pulumi.export(outputs.STACK, name)
pulumi.export(outputs.STORAGE_URL, stack.storage.url)
pulumi.export(outputs.BUCKET, stack.storage.bucket)
pulumi.export(outputs.ACCESS_KEY, pulumi.Output.secret(stack.storage.access_key))
pulumi.export(outputs.SECRET_KEY, pulumi.Output.secret(stack.storage.secret_key))
pulumi.export(outputs.RAY_VERSION, versions.RAY)
pulumi.export(outputs.PYTHON_VERSION, stack.python)
pulumi.export(outputs.NODES, stack.outputs[outputs.NODES])
for connection in outputs.CONNECTIONS:
    pulumi.export(connection, stack.connections.get(connection, {}))
prefix = stack.outputs.get(outputs.CONTAINER_PREFIX, "")
pulumi.export(outputs.CONTAINER_PREFIX, prefix)
pulumi.export(outputs.QUEUE, stack.outputs.get(outputs.QUEUE, ""))
pulumi.export(outputs.OWNER, local.owner(settings.owner))
pulumi.export(outputs.JOB_START_TIMEOUT_SECONDS, settings.of_services[ray_node.JOB_START])
pulumi.export(outputs.RESERVED_FROM, stack.reserved_from)
pulumi.export(outputs.EXPIRES_AT, stack.expires_at)
pulumi.export(outputs.VOLUMES, ", ".join(f"{v.name} at {v.mount}" for v in stack.volumes))
pulumi.export(outputs.REQUESTS_FOLDER, stack.requests_folder)
cluster_file = stack.outputs.get(outputs.RAY_CLUSTER_FILE, "")
pulumi.export(outputs.RAY_CLUSTER_FILE, pulumi.Output.secret(cluster_file))
pulumi.export(outputs.SERVICES, [endpoint.entry for endpoint in services.ENDPOINTS])
for endpoint in services.ENDPOINTS:
    for output, hidden in endpoint.outputs.items():
        value = stack.outputs.get(output, "")
        pulumi.export(output, pulumi.Output.secret(value) if hidden else value)
