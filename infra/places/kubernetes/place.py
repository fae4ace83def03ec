"""An existing Kubernetes cluster: the stack's services are pods there."""

from dataclasses import replace
from functools import partial

import pulumi

from cluster import autoscaling, services
from cluster.descriptor import Source, Stack
from cluster.storage import Storage
from infra.machines.fleet import IdleWatch
from infra.places.target import services_for
from infra.settings.config import Settings
from trainyard.access import outputs

IN_PODS = tuple(source for source in Source if source is not Source.MODULE)  # it has no image


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack names a cluster."""
    return settings.kubernetes is not None


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the kubernetes runtime in an existing cluster.

    Raises:
        pulumi.RunError: the cluster does not answer, or a stack cannot be in it.
    """
    # Not at the top: lightkube costs other stacks a third of a second.
    from infra.places.kubernetes import (  # noqa: PLC0415
        kuberay_cluster,
        manifests,
        preflight,
    )
    from infra.places.kubernetes.reservation_end import End  # noqa: PLC0415
    from infra.places.kubernetes.runtime import KubernetesRuntime  # noqa: PLC0415
    from trainyard.access.kubectl import Cluster  # noqa: PLC0415

    if (where := settings.kubernetes) is None:
        raise ValueError("the stack names no cluster")
    cluster = Cluster(kubeconfig=where.kubeconfig, context=where.context, namespace=where.namespace)
    running = services_for(settings, settings.store_of_pods, *IN_PODS)
    # Pods are selected by the labels: two owners may have stacks of one name.
    labels = manifests.labels(pulumi.get_project(), settings.names_of_objects)
    runtime = KubernetesRuntime(
        "kubernetes",
        manifests.ObjectDefaults(settings=settings, where=where, labels=labels),
        preflight.check(
            cluster,
            grows=autoscaling.grows(settings.workers),
            gcs=settings.ports["gcsPort"],
            ends=settings.reservation is not None,
            queue=where.queue,
            priority=where.priority_class,
        ),
    )
    end, idle = None, IdleWatch.of(settings)
    if settings.reservation is not None:
        end = End(
            at=settings.reservation.end.isoformat(),
            drain=settings.drain_seconds,
            services=[
                name
                for service in running
                if service is not services.RAY
                for name in service.services(len(settings.workers))
            ],
            gcs_port=settings.ports["gcsPort"],
            idle=idle,
        )
    ray = replace(
        services.RAY, declare=partial(kuberay_cluster.KubeRayCluster, "ray", runtime, end)
    )
    stack = Stack(
        runtime=runtime,
        settings=settings,
        services=[ray if service is services.RAY else service for service in running],
        python=settings.python,
        workers=settings.workers,
        idle_token=idle.token if idle else "",
        data=f"{manifests.SHARED}/{runtime.defaults.prefix}",
        connections={
            outputs.KUBERNETES: {
                "kubeconfig": where.kubeconfig,
                "context": where.context,
                "namespace": where.namespace,
                "rayCluster": runtime.ray_name,
                "services": {
                    str(settings.ports[port.key]): runtime.service_name(service.name)
                    for service in running
                    for port in service.ports
                    if port.published
                },
            }
        },
    )
    if where.bucket:
        stack.storage = Storage(url=where.bucket)
    return stack
