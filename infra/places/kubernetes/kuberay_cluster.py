"""Ray on Kubernetes: a KubeRay RayCluster instead of a stack's own nodes.

KubeRay's operator makes the pods, starts Ray in them and gives them the token. Jobs find the
same variables and files as on other stacks' nodes.
"""

from collections.abc import Mapping, Sequence

import pulumi

from cluster import kuberay, ray_cluster, ray_node
from cluster.descriptor import Stack
from cluster.kuberay_spec import Mount, Packages, RayClusterSpec, WorkerGroup
from cluster.ray_node import NodeAddition, NodeResources
from cluster.service import Volume
from infra.places.kubernetes import manifests, reservation_end
from infra.places.kubernetes.runtime import CLUSTER, KubernetesRuntime
from infra.settings import versions
from infra.settings.images import CONTEXTS
from infra.settings.nodes import Group
from node import packages, ray_start, source_text, worker_start

# Of pods whose image has Ray alone.
PACKAGES = Volume(name="packages", keep=False, shared=True)
REQUIREMENTS = CONTEXTS / "ray"
# The operator sets these, so that nodes find the token.
GIVEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")


class KubeRayCluster(ray_cluster.Cluster):
    """The RayCluster, and what it needs."""

    def __init__(
        self,
        name: str,
        runtime: KubernetesRuntime,
        end: reservation_end.End | None,
        stack: Stack,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it in a stack; `end` is that of its pods, None for none."""
        super().__init__("trainyard:kubernetes:KubeRayCluster", name, None, opts)
        files = {each.FILE: source_text(each.FILE) for each in (ray_start, worker_start)}
        if runtime.defaults.where.image:
            files |= packages.files(REQUIREMENTS)
        secrets = ray_node.secret_files(
            stack.token, stack.storage, stack.additions, serve_token=stack.serve_token
        )
        spec = specification(runtime, stack, files, secrets)
        manifest = kuberay.ray_cluster(spec)
        workers = _known(stack.workers)
        names = [ray_node.HEAD, *(ray_node.worker_name(index) for index in range(len(workers)))]
        self.export(stack, runtime, map(ray_cluster.node_output, names, [stack.head, *workers]))
        guard = runtime.guard(
            manifest, spec.token_secret, self.dashboard_url, pulumi.ResourceOptions(parent=self)
        )
        # The token it asks with, and the files that pods read, must not change before it.
        child = pulumi.ResourceOptions(parent=self, depends_on=[guard])
        before = runtime.place_files(CLUSTER, files, secrets, child)
        token = manifests.secret(runtime.defaults, CLUSTER, spec.token_secret)
        before.append(
            runtime.place_object(
                "ray-token", token, child, secrets={kuberay.TOKEN_KEY: stack.token}
            )
        )
        if end:
            after = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=before))
            reservation_end.declare(end, runtime, spec.token_secret, after)
        budget = kuberay.head_budget(spec.name, spec.namespace, spec.labels)
        runtime.place_object("ray-budget", budget, child)
        made = runtime.place_object("ray", manifest, child, before=[*before, *runtime.filled])
        runtime.await_ready(
            "ray",
            manifest,
            pods={kuberay.CLUSTER_LABEL: spec.name},
            seconds=runtime.defaults.settings.start_timeout_seconds,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[made]),
        )
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


def specification(
    runtime: KubernetesRuntime,
    stack: Stack,
    files: Mapping[str, pulumi.Input[str]],
    secrets: Mapping[str, pulumi.Input[str]],
) -> RayClusterSpec:
    """Return the specification of a stack's cluster for KubeRay; other services are declared.

    Raises:
        pulumi.RunError: KubeRay cannot do what the settings ask for.
    """
    defaults, settings = runtime.defaults, runtime.defaults.settings
    where, accelerator = runtime.defaults.where, settings.accelerator
    ports = stack.settings.ports
    source = manifests.files_source(defaults, CLUSTER, [*files], [*secrets])
    start = ray_start.environment(runtime.file(ray_node.HEAD, ray_start.FILE))
    common = ray_cluster.node_environment(ray_node.HEAD, stack)
    common = {name: value for name, value in common.items() if name not in GIVEN} | start
    installed = None
    if defaults.where.image:
        version = packages.version(packages.files(REQUIREMENTS))
        folder = f"{manifests.path(defaults, PACKAGES)}/{version}"
        module = runtime.file(ray_node.HEAD, packages.FILE)
        installed = Packages(folder=folder, module=module, python=settings.python)
        common[packages.BASE] = folder
    head = ray_cluster.head_environment(ray_node.HEAD, stack)
    mounts = [Mount(name=manifests.FILES_VOLUME, path=manifests.FILES, source=source)]
    if defaults.shared or installed:
        mounts.append(manifests.mounted(defaults, CLUSTER, PACKAGES))
    try:
        return RayClusterSpec(
            name=runtime.ray_name,
            namespace=defaults.where.namespace,
            labels=defaults.pods(CLUSTER),
            image=settings.images["ray"],
            pull_secrets=defaults.where.pull_secrets,
            ray_version=versions.RAY,
            token_secret=f"{runtime.ray_name}-token",
            head=stack.head,
            groups=_groups(_known(stack.workers), {each.name: each for each in settings.groups}),
            ports=ports,
            head_environment=common | head,
            worker_environment=common,
            mounts=[*mounts, *(manifests.mounted(defaults, CLUSTER, v) for v in stack.volumes)],
            head_mounts=_head_mounts(runtime, stack.additions),
            shared=manifests.SHARED if defaults.shared else "",
            packages=installed,
            accelerator="" if accelerator == "none" else accelerator,
            annotations={manifests.FILES_ANNOTATION: runtime.digest(files, secrets)},
            environment_secret=where.environment_secret,
            group=where.group,
            cpu_share=where.cpu_share,
            queue_labels=where.queue_labels,
            drain_seconds=settings.drain_seconds,
            pod_seconds=where.pod_timeout_seconds,
        )
    except ValueError as error:
        raise pulumi.RunError(f"runtime kubernetes: {error}") from None


def _head_mounts(runtime: KubernetesRuntime, additions: Sequence[NodeAddition]) -> list[Mount]:
    """Return volumes of the head alone, where pods share none."""
    defaults = runtime.defaults
    volumes = {v.name: v for each in additions if each.head_only for v in each.volumes}
    found = [manifests.mounted(defaults, CLUSTER, volume) for volume in volumes.values()]
    return [each for each in found if each.name != manifests.SHARED_VOLUME]


def _known(workers: Sequence[pulumi.Input[NodeResources]]) -> list[NodeResources]:
    return [node for node in workers if isinstance(node, NodeResources)]


def _groups(workers: Sequence[NodeResources], settings: Mapping[str, Group]) -> list[WorkerGroup]:
    """Return workers by group: members of one are alike."""
    return [
        WorkerGroup(
            node=node,
            count=settings[name].count,
            image=settings[name].image,
            node_selector=settings[name].node_selector,
            tolerations=[each.set_fields() for each in settings[name].tolerations],
        )
        for name, node in {node.group: node for node in workers}.items()
    ]
