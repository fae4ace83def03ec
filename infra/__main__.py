"""One stack: a Ray training cluster, its object store and its monitoring."""

import pulumi

from cluster import ray_head
from cluster.dataset import Dataset, DatasetArgs
from cluster.gateway import Gateway, GatewayArgs
from cluster.grafana import SERVICE as GRAFANA
from cluster.grafana import Grafana, GrafanaArgs
from cluster.monitoring import Monitoring, MonitoringArgs
from cluster.notebook import Notebook, NotebookArgs
from cluster.object_store import ObjectStore, ObjectStoreArgs, Storage
from cluster.ray_cluster import TOKEN_BYTES, RayCluster, RayClusterArgs
from cluster.secret import Secret
from cluster.tracking import Tracking, TrackingArgs
from infra import checkout, config, outputs, place, versions
from infra.hosts import local
from infra.ray_launcher import RayLauncher, RayLauncherArgs
from infra.runtimes import choice

NONE = pulumi.Output.secret("")  # a secret that this stack has no use for

stack = pulumi.get_stack()
checkout.forget_salt(stack)
settings = config.read(local.LocalHost.detect())
if settings.on_hosts:
    here = place.hosts(settings)
elif choice.choose(settings.runtime, local.choice_file(stack)) == choice.DOCKER:
    here = place.containers(settings)
else:
    here = place.processes(settings)
token = Secret("ray-token", TOKEN_BYTES)
# Of its own: who may ask a model must not be able to run code on the cluster.
serve_token = Secret("serve-token", TOKEN_BYTES)
storage = Storage(url=f"file://{here.data}/storage")
if here.store is not None:
    storage = ObjectStore(
        "object-store",
        ObjectStoreArgs(
            kind=here.store,
            runtime=here.runtime,
            bucket=settings.bucket,
            port=settings.object_store_port,
            console_port=settings.object_store_console_port,
        ),
    ).storage
monitoring: Monitoring | None = None
if here.prometheus:
    monitoring = Monitoring(
        "monitoring",
        MonitoringArgs(
            runtime=here.runtime,
            port=settings.prometheus_port,
            dashboard_port=settings.dashboard_port,
            ray_token=token.value,
            storage=storage,
        ),
    )
grafana: Grafana | None = None
if monitoring is not None and here.grafana:
    outside = f"http://{here.runtime.public(GRAFANA, settings.grafana_port)}"
    dashboard = f"http://{here.runtime.public(ray_head.SERVICE, settings.dashboard_port)}"
    grafana = Grafana(
        "grafana",
        GrafanaArgs(
            runtime=here.runtime,
            port=settings.grafana_port,
            prometheus=monitoring.internal_url,
            public_url=outside,
            ray_dashboard_url=dashboard,
            of_store=bool(storage.metrics),
            anonymous=settings.grafana_anonymous_viewer,
        ),
    )
tracking: Tracking | None = None
if settings.tracks:
    tracking = Tracking(
        "tracking",
        TrackingArgs(runtime=here.runtime, port=settings.tracking_port, storage=storage),
    )
if settings.dataset is not None:
    Dataset(
        "dataset",
        DatasetArgs(
            runtime=here.runtime,
            generate=settings.dataset.generate,
            url=settings.dataset.url,
            archive=str(settings.dataset.archive or ""),
            sha256=settings.dataset.sha256,
        ),
    )
ray: RayCluster | RayLauncher
if here.launched is None:
    ray = RayCluster(
        "ray",
        RayClusterArgs(
            runtime=here.runtime,
            head=settings.head,
            workers=here.workers,
            ports=settings.ray_ports,
            token=token.value,
            serve_token=serve_token.value,
            storage=storage,
            tracking=tracking.access if tracking else None,
            prometheus_url=None if monitoring is None else monitoring.internal_url,
            grafana=grafana.urls if grafana else None,
            gpus=here.gpus,
            has_dataset=settings.dataset is not None,
        ),
    )
else:
    ray = RayLauncher(
        "ray",
        RayLauncherArgs(
            launched=here.launched,
            workers=here.workers,
            ports=settings.ray_ports,
            token=token.value,
            serve_token=serve_token.value,
            storage=storage,
            tracking=tracking.access if tracking else None,
            prometheus_url=None if monitoring is None else monitoring.internal_url,
        ),
    )
notebook: Notebook | None = None
if here.notebook:
    notebook = Notebook(
        "notebook",
        NotebookArgs(
            runtime=here.runtime,
            port=settings.notebook_port,
            dashboard_port=settings.dashboard_port,
            ray_token=token.value,
        ),
    )
gateway: Gateway | None = None
if here.routes:
    gateway = Gateway(
        "gateway",
        GatewayArgs(
            runtime=here.runtime,
            routes=here.routes,
            # This machine as well: what the outputs name is what its own users connect to.
            cidrs=[*settings.allowed_cidrs, f"{settings.publish_address}/32"],
            connections=settings.connections_per_address,
        ),
    )

pulumi.export(outputs.PROJECT, pulumi.get_project())
pulumi.export(outputs.STACK, stack)
pulumi.export(outputs.DASHBOARD_URL, ray.dashboard_url)
pulumi.export(outputs.RAY_TOKEN, pulumi.Output.secret(token.value))
pulumi.export(outputs.STORAGE_URL, storage.url)
pulumi.export(outputs.OBJECT_STORE_ENDPOINT, storage.endpoint)
pulumi.export(outputs.BUCKET, storage.bucket)
pulumi.export(outputs.ACCESS_KEY, pulumi.Output.secret(storage.access_key))
pulumi.export(outputs.SECRET_KEY, pulumi.Output.secret(storage.secret_key))
pulumi.export(outputs.PROMETHEUS_URL, monitoring.url if monitoring else "")
pulumi.export(outputs.PROMETHEUS_PASSWORD, gateway.password if gateway else NONE)
pulumi.export(outputs.GRAFANA_URL, grafana.url if grafana else "")
pulumi.export(outputs.GRAFANA_PASSWORD, grafana.password if grafana else NONE)
pulumi.export(outputs.NOTEBOOK_URL, notebook.url if notebook else NONE)
pulumi.export(outputs.TRACKING_URL, tracking.url if tracking else "")
pulumi.export(outputs.TRACKING_PASSWORD, tracking.password if tracking else NONE)
pulumi.export(outputs.SERVE_URL, ray.serve_url)
pulumi.export(outputs.SERVE_TOKEN, pulumi.Output.secret(serve_token.value))
pulumi.export(outputs.RAY_VERSION, versions.RAY)
pulumi.export(outputs.PYTHON_VERSION, here.python)
pulumi.export(outputs.NODES, ray.nodes)
pulumi.export(outputs.SSH, here.ssh)
pulumi.export(outputs.EXPIRES_AT, here.expires_at)
pulumi.export(outputs.RAY_CLUSTER_FILE, ray.launcher_file if isinstance(ray, RayLauncher) else NONE)
