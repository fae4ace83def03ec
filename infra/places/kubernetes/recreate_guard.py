"""Keeps jobs from being lost to a change for which KubeRay recreates all pods of Ray.

KubeRay does not ask. So this resource comes before all that Ray's pods are made from: its update
names the running jobs, and fails, unless the user said that they may be lost. It looks at the
existing RayCluster: an `up` that failed may have left another one than the settings say.
"""

import base64
from typing import Any

from pulumi import dynamic

from cluster import kuberay, lazy_import
from cluster.provider import Given, Provider, Resource, has_unknown, say
from infra.places.kubernetes import pods
from infra.places.kubernetes.objects import ManifestArgs, api_module, apply, plain
from infra.service import leaving
from node.life import ServiceError
from trainyard.access import outputs
from trainyard.access.kubectl import Cluster, forwarded


class RecreateGuardArgs(ManifestArgs):
    """Arguments of a RayCluster's guard.

    Attributes:
        secret: name of the Secret with Ray's token.
        dashboard: URL, for users.
    """

    secret: str
    dashboard: Given[str]


class RecreateGuardProvider(Provider[RecreateGuardArgs]):
    """The jobs of a RayCluster whose pods are about to be recreated."""

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        if has_unknown(olds) or has_unknown(news):
            return dynamic.DiffResult(changes=True)
        changed = plain(olds) != plain(news) or _are_made_anew(*map(self.takes.of, (olds, news)))
        return dynamic.DiffResult(changes=changed)

    def make(self, args: RecreateGuardArgs) -> tuple[str, dict[str, Any]]:
        """Do nothing: no pods exist yet."""
        return args.identity[-1], {}

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Look whether jobs run.

        Raises:
            ServiceError: jobs run, and FORCE is not set.
        """
        lost = "this change recreates all pods of Ray, and these jobs would be lost"
        before, after = RecreateGuardArgs.of(olds), RecreateGuardArgs.of(news)
        leaving.refuse_loss(lost, lambda: _jobs(before) if _are_made_anew(before, after) else [])
        return dynamic.UpdateResult(news)


class RecreateGuard(Resource[RecreateGuardArgs], module="kubernetes", name="RecreateGuard"):
    """Keeps jobs from being lost to a change of a RayCluster."""

    _kind = RecreateGuardProvider


def _are_made_anew(before: RecreateGuardArgs, after: RecreateGuardArgs) -> bool:
    """Return whether an update ends existing pods."""
    if before.identity != after.identity:
        return True  # they are elsewhere then
    api = after.opened()
    live = api.get(*after.identity[::2])
    if live is None:
        return False
    tried = apply(api, after.applied, dry_run=True)
    return kuberay.made_from(tried) != kuberay.made_from(live)


def _jobs(args: RecreateGuardArgs) -> list[str]:
    """Return the jobs that run; those of a head that does not run have ended."""
    cluster, name = Cluster.of(args.cluster), args.identity[-1]
    if not _head_is_ready(cluster, name):
        say("Ray's head does not run, so its pods are recreated")
        return []
    # Not at the top: an `up` that changes nothing does not ask.
    dashboard, jobs = (
        lazy_import.module("infra.operate.dashboard"),
        lazy_import.module("infra.operate.review.jobs"),
    )
    head = kuberay.head_service(name)
    known = {outputs.DASHBOARD_URL: args.dashboard, outputs.RAY_TOKEN: _token(args)}
    try:
        found = jobs.running(known, lambda _host, port: forwarded(cluster, head, port))
    except dashboard.AskError as error:
        if _head_is_ready(cluster, name):  # still
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


def _token(args: RecreateGuardArgs) -> str:
    """Return Ray's token as the pods have it: a new one may be about to come."""
    secret = api_module().open_api(Cluster.of(args.cluster)).get("Secret", args.secret)
    data = (secret or {}).get("data") or {}
    return base64.b64decode(data.get(kuberay.TOKEN_KEY, "")).decode()
