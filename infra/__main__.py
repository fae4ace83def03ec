"""One stack: a Ray training cluster on this machine, with its object store and its monitoring."""

import sys

import pulumi

from cluster.monitoring import Monitoring, MonitoringArgs
from cluster.object_store import ObjectStore, ObjectStoreArgs, Storage
from cluster.ray_cluster import TOKEN_BYTES, RayCluster, RayClusterArgs
from cluster.secret import Secret
from infra import checkout, config, outputs, tools, versions
from infra.hosts.local import LocalHost
from infra.runtimes.process import ProcessRuntime, ProcessRuntimeArgs

checkout.forget_salt(pulumi.get_stack())
settings = config.read(LocalHost.detect())
found = tools.find(settings.object_store)
runtime = ProcessRuntime(
    "local",
    ProcessRuntimeArgs(
        folder=str(settings.state_dir),
        data=str(settings.data_dir),
        keep_data=settings.keep_data,
        identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
        executables=found.paths,
        ports=settings.ports(object_store=found.minio, prometheus=found.prometheus),
        start_timeout=settings.start_timeout_seconds,
    ),
)
token = Secret("ray-token", TOKEN_BYTES)
storage = Storage(url=(settings.data_dir / "storage").as_uri())
if found.minio:
    storage = ObjectStore(
        "object-store",
        ObjectStoreArgs(
            runtime=runtime,
            bucket=settings.bucket,
            port=settings.object_store_port,
            console_port=settings.object_store_console_port,
        ),
    ).storage
prometheus_url: pulumi.Output[str] | None = None
if found.prometheus:
    prometheus_url = Monitoring(
        "monitoring",
        MonitoringArgs(
            runtime=runtime,
            port=settings.prometheus_port,
            dashboard_port=settings.dashboard_port,
            ray_token=token.value,
            storage=storage,
        ),
    ).url
ray = RayCluster(
    "ray",
    RayClusterArgs(
        runtime=runtime,
        head=settings.head,
        workers=settings.workers,
        ports=settings.ray_ports,
        token=token.value,
        storage=storage,
        prometheus_url=prometheus_url,
    ),
)

pulumi.export(outputs.PROJECT, pulumi.get_project())
pulumi.export(outputs.STACK, pulumi.get_stack())
pulumi.export(outputs.DASHBOARD_URL, ray.dashboard_url)
pulumi.export(outputs.RAY_TOKEN, pulumi.Output.secret(token.value))
pulumi.export(outputs.STORAGE_URL, storage.url)
pulumi.export(outputs.OBJECT_STORE_ENDPOINT, storage.endpoint)
pulumi.export(outputs.BUCKET, storage.bucket)
pulumi.export(outputs.ACCESS_KEY, storage.access_key)
pulumi.export(outputs.SECRET_KEY, pulumi.Output.secret(storage.secret_key))
pulumi.export(outputs.PROMETHEUS_URL, "" if prometheus_url is None else prometheus_url)
pulumi.export(outputs.GRAFANA_URL, "")
pulumi.export(outputs.RAY_VERSION, versions.RAY)
pulumi.export(outputs.PYTHON_VERSION, f"{sys.version_info.major}.{sys.version_info.minor}")
pulumi.export(outputs.NODES, ray.nodes)
