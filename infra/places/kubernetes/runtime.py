"""The kubernetes runtime: each service's objects, and the waits for its pods.

The program runs outside the cluster. It asks the API whether pods are ready, and reaches the
object store by `kubectl port-forward`.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pulumi

from cluster import kuberay, ray_node
from cluster.inputs import lift
from cluster.secret import Secret
from cluster.service import Service, Volume
from infra.places.kubernetes import manifests
from infra.places.kubernetes.manifests import Manifest, ObjectDefaults
from infra.places.kubernetes.objects import Object, ObjectArgs
from infra.places.kubernetes.ready import Ready, ReadyArgs
from infra.places.kubernetes.recreate_guard import RecreateGuard, RecreateGuardArgs
from infra.service.images import LOOPBACK, FromImages
from infra.settings import container_limits

OWNER_BYTES = 8
CLUSTER = "ray"  # end of the name of the RayCluster


class KubernetesRuntime(FromImages, pulumi.ComponentResource):
    """Runs services as pods.

    Attributes:
        defaults: values that all objects of the stack share.
        filled: the services that have to end well before jobs find all data.
    """

    def __init__(
        self,
        name: str,
        defaults: ObjectDefaults,
        uid: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare what all services need in the cluster of that uid."""
        super().__init__("trainyard:kubernetes:KubernetesRuntime", name, None, opts)
        self._name, self.defaults = name, defaults
        owner = Secret(f"{name}-owner", OWNER_BYTES, pulumi.ResourceOptions(parent=self)).value
        # It tells stacks apart, and proves nothing: anyone who may look at objects sees it.
        self._owner = pulumi.Output.unsecret(owner)
        where = defaults.where
        self._where = {
            "kubeconfig": where.kubeconfig,
            "context": where.context,
            "namespace": where.namespace,
            "uid": uid,
        }
        self.filled: list[pulumi.Resource] = []
        self._first: list[pulumi.Resource] = []
        policy = kuberay.network_policy(defaults.prefix, where.namespace, defaults.labels)
        opts = pulumi.ResourceOptions(parent=self)
        # Before all others: no pod is without it, and other names are refused once.
        self._first = [self.place_object("network", policy, opts)]
        self.register_outputs({})

    @property
    def via(self) -> Mapping[str, Any]:
        """The way by which this Pulumi program reaches published ports."""
        return self._where

    def address(self, service: str, port: int) -> str:
        return f"{self.service_name(service)}:{port}"

    published = address  # at which `via` reaches a published port

    def public(self, service: str, port: int) -> str:  # noqa: ARG002 (numbers are unique)
        """Return host:port at which users reach a published port: through `train tunnel`."""
        return f"{LOOPBACK}:{port}"

    def volume(self, service: str, volume: Volume) -> str:  # noqa: ARG002 (each has a file system)
        return manifests.path(self.defaults, volume)

    def service_name(self, service: str) -> str:
        """Return the name by which other pods reach a service; KubeRay names the head's."""
        if service == ray_node.HEAD:
            return kuberay.head_service(self.ray_name)
        return self.defaults.name(service)

    @property
    def ray_name(self) -> str:
        return self.defaults.name(CLUSTER)

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        defaults, name = self.defaults, service.name
        before = self.place_files(name, service.files, service.secrets, opts)
        for volume in service.volumes:
            if manifests.is_claimed(volume):
                found = manifests.claim(defaults, name, volume)
                before.append(self.place_object(f"{name}-{volume.name}", found, opts, keep=True))
        if service.ports:
            network = manifests.network_service(defaults, service)
            before.append(self.place_object(f"{name}-service", network, opts))
        limit = container_limits.of(name, self.defaults.settings.container_limits)
        workload = manifests.workload(
            defaults,
            service,
            image=self.defaults.settings.images[service.program],
            memory_mib=limit.memory_mib,
            files=self.digest(service.files, service.secrets),
        )
        made = self.place_object(name, workload, opts, before=before)
        ready = self.await_ready(
            name,
            workload,
            pods=defaults.pods(name),
            seconds=defaults.settings.start_timeout_seconds,
            opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[made]),
            once=service.once,
        )
        if service.once:
            self.filled.append(ready)
        return ready

    def place_files(
        self,
        service: str,
        files: Mapping[str, pulumi.Input[str]],
        secrets: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> list[pulumi.Resource]:
        """Declare the files of a service, and its secret files."""
        defaults = self.defaults
        found: list[pulumi.Resource] = []
        if files:
            wanted = manifests.config_map(defaults, service, files)
            found.append(self.place_object(f"{service}-files", wanted, opts))
        if secrets:
            texts = {manifests.key(name): value for name, value in secrets.items()}
            wanted = manifests.secret(defaults, service)
            found.append(self.place_object(f"{service}-secrets", wanted, opts, secrets=texts))
        return found

    def place_object(
        self,
        name: str,
        manifest: Manifest,
        opts: pulumi.ResourceOptions,
        *,
        secrets: Mapping[str, pulumi.Input[str]] | None = None,
        keep: bool = False,
        before: Collection[pulumi.Resource] = (),
    ) -> Object:
        """Declare an object, without the runtime's name.

        Secrets are texts by key. One to keep has results, which outlive the stack where the
        settings say so. `before` has to be there first.
        """
        return Object(
            f"{self._name}-{name}",
            ObjectArgs(
                cluster=self._where,
                owner=self._owner,
                manifest=self._labelled(manifest),
                secrets=pulumi.Output.secret(dict(secrets)) if secrets else {},
                keep=keep and self.defaults.settings.keep_data,
            ),
            pulumi.ResourceOptions.merge(
                opts, pulumi.ResourceOptions(depends_on=[*self._first, *before])
            ),
        )

    def _labelled(self, manifest: Manifest) -> Manifest:
        """Return a manifest with its user in a label, which its pods do not have."""
        user = manifests.label_value(self.defaults.settings.owner)
        if not user:
            return manifest
        metadata = manifest["metadata"]
        labels = {**metadata.get("labels", {}), manifests.USER_LABEL: user}
        return {**manifest, "metadata": {**metadata, "labels": labels}}

    def guard(
        self,
        ray_cluster: Manifest,
        secret: str,
        dashboard: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> RecreateGuard:
        """Declare the guard that keeps a change of a RayCluster from ending jobs; see its class."""
        return RecreateGuard(
            f"{self._name}-guard",
            RecreateGuardArgs(
                cluster=self._where,
                owner=self._owner,
                manifest=ray_cluster,
                secret=secret,
                dashboard=dashboard,
            ),
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=self._first)),
        )

    def await_ready(
        self,
        name: str,
        manifest: Manifest,
        *,
        pods: Mapping[str, str],
        seconds: int,
        opts: pulumi.ResourceOptions,
        once: bool = False,
    ) -> Ready:
        """Declare the wait for an object's pods, by their labels; its options name the object."""
        return Ready(
            f"{self._name}-{name}-ready",
            ReadyArgs(
                cluster=self._where,
                kind=manifest["kind"],
                name=manifest["metadata"]["name"],
                pods=dict(pods),
                once=once,
                version=_digest(manifest),
                timeout=seconds,
            ),
            opts,
        )

    @staticmethod
    def digest(*files: Mapping[str, pulumi.Input[str]]) -> Any:
        """Return a digest of files and secret files, which is not a secret."""
        contents = {name: value for each in files for name, value in each.items()}
        names = list(contents)
        found = lift(
            lambda *known: manifests.digest(dict(zip(names, known, strict=True))),
            *contents.values(),
        )
        return pulumi.Output.unsecret(found) if isinstance(found, pulumi.Output) else found


def _digest(manifest: Manifest) -> pulumi.Output[str]:
    return pulumi.Output.json_dumps(manifest).apply(
        lambda text: manifests.digest({"manifest": text})
    )
