"""Keeps jobs from being lost to a change for which KubeRay recreates all pods of Ray.

KubeRay does not ask. So this resource comes before all that Ray's pods are made from: its update
names the running jobs, and fails, unless the user said that they may be lost. It looks at the
existing RayCluster: an `up` that failed may have left another one than the settings say.
"""

import base64
from collections.abc import Mapping
from typing import Any

from pulumi import dynamic

from cluster import kuberay, lazy_import
from cluster.provider import Provider, Resource, has_unknown, say
from infra.places.kubernetes import pods
from infra.places.kubernetes.objects import (
    api_module,
    apply,
    identity,
    manifest,
    opened,
    plain,
)
from infra.service import leaving
from node.life import ServiceError
from trainyard.access import outputs
from trainyard.access.kubectl import Cluster, forwarded


class RecreateGuardProvider(Provider):
    """The jobs of a RayCluster whose pods are about to be recreated."""

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Compare the present and the future inputs of the pods."""
        if has_unknown(olds) or has_unknown(news):
            return dynamic.DiffResult(changes=True)
        changed = plain(olds) != plain(news)
        return dynamic.DiffResult(changes=changed or _are_made_anew(olds, news))

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Do nothing: no pods exist yet."""
        return dynamic.CreateResult(identity(props)[-1], props)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Look whether jobs run.

        Raises:
            ServiceError: jobs run, and FORCE is not set.
        """
        lost = "this change recreates all pods of Ray, and these jobs would be lost"
        leaving.refuse_loss(lost, lambda: _jobs(olds) if _are_made_anew(olds, news) else [])
        return dynamic.UpdateResult(news)


class RecreateGuard(Resource, module="kubernetes", name="RecreateGuard"):
    """Keeps jobs from being lost to a change of a RayCluster.

    From cluster, owner and manifest (as the Object of the RayCluster has them), secret (name of the
    Secret with Ray's token) and dashboard (URL, for users).
    """

    _kind = RecreateGuardProvider


def _are_made_anew(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether an update ends existing pods."""
    if identity(olds) != identity(news):
        return True  # they are elsewhere then
    api = opened(news)
    live = api.get(*identity(news)[::2])
    if live is None:
        return False
    tried = apply(api, manifest(news), dry_run=True)
    return kuberay.made_from(tried) != kuberay.made_from(live)


def _jobs(props: Mapping[str, Any]) -> list[str]:
    """Return the jobs that run; those of a head that does not run have ended."""
    cluster = Cluster.of(props["cluster"])
    if not _head_is_ready(cluster, identity(props)[-1]):
        say("Ray's head does not run, so its pods are recreated")
        return []
    # Not at the top: an `up` that changes nothing does not ask.
    dashboard, jobs = (
        lazy_import.module("infra.operate.dashboard"),
        lazy_import.module("infra.operate.review.jobs"),
    )
    head = kuberay.head_service(identity(props)[-1])
    known = {outputs.DASHBOARD_URL: props["dashboard"], outputs.RAY_TOKEN: _token(props)}
    try:
        found = jobs.running(known, lambda _host, port: forwarded(cluster, head, port))
    except dashboard.AskError as error:
        if _head_is_ready(cluster, identity(props)[-1]):  # still
            raise ServiceError(
                "this change recreates all pods of Ray; cannot tell which jobs would be lost: "
                f"{error}. Run `up` again; `make up FORCE=1` asks, and ends them"
            ) from None
        say(f"Ray's head ends, so its pods are recreated: {error}")
        return []
    return list[str](found)


def _head_is_ready(cluster: Cluster, name: str) -> bool:
    """Return whether the head of a RayCluster runs and is not ending: then it may have jobs."""
    found = api_module().open_api(cluster).pods(kuberay.head_pods(name))
    return any(pods.is_ready(pod) and not pods.is_ending(pod) for pod in found)


def _token(props: Mapping[str, Any]) -> str:
    """Return Ray's token as the pods have it: a new one may be about to come."""
    secret = api_module().open_api(Cluster.of(props["cluster"])).get("Secret", props["secret"])
    data = (secret or {}).get("data") or {}
    return base64.b64decode(data.get(kuberay.TOKEN_KEY, "")).decode()
