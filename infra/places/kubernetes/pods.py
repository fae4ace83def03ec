"""Reasons why pods are not ready; pure functions of the cluster's answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cluster.kuberay_pods import PACKAGES
from node.life import STARTS_LIMIT, WINDOW_SECONDS
from node.life import loops as keeps_ending

Pod = Mapping[str, Any]

CREATING = ("ContainerCreating", "PodInitializing")
NEVER = ("InvalidImageName", "ErrImageNeverPull")  # no later attempt fixes these
IMAGE = ("ErrImagePull", "ImagePullBackOff", *NEVER)
FAILING = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """The reason why a pod is not ready, or an object has no pods.

    Attributes:
        name: of the pod or object.
        container: which of a pod's containers, "" for the whole.
        final: whether waiting would not help.
        logs: whether the container's log says more.
        kind: of the object.
        patient: whether it may take any time: Kueue keeps the object's place, also after a Ctrl-C.
    """

    name: str
    container: str
    text: str
    final: bool = False
    logs: bool = False
    kind: str = "pod"
    patient: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies a trouble to tell once: the cluster words it differently at each attempt."""
        return self.name, self.container, self.text.partition(":")[0]

    @property
    def line(self) -> str:
        """One line for people."""
        of = f", container {self.container}" if self.container else ""
        return f"{self.kind} {self.name}{of} {self.text}"


def is_ready(pod: Pod) -> bool:
    """Return whether a pod runs and its probes answer."""
    return _condition(pod, "Ready").get("status") == "True"


def is_ending(pod: Pod) -> bool:
    """Return whether a pod, or another object, was told to end."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def owned(pods: Sequence[Pod], uid: str) -> list[Pod]:
    """Return the pods of one object: those of a deleted one of its name remain for moments."""
    return [
        pod
        for pod in pods
        if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or [])
    ]


def is_creating(pod: Pod) -> bool:
    """Return whether a pod's images are being pulled or its volumes attached.

    Neither happens while an init container runs, such as KubeRay's wait for the head. The one that
    installs packages counts as a pull.
    """
    starting = pod["status"].get("initContainerStatuses") or []
    running = {each["name"] for each in starting if "running" in (each.get("state") or {})}
    if running:
        return running == {PACKAGES}
    return any(
        _waiting(status).get("reason") in CREATING
        for _, status in _statuses(pod)
        if _condition(pod, "PodScheduled").get("status") == "True"
    )


def troubles(pods: Sequence[Pod]) -> list[Trouble]:
    """Return the troubles of pods; none for pods that only need time."""
    return [trouble for pod in pods if not is_ending(pod) for trouble in _of(pod)]


def _of(pod: Pod) -> Iterator[Trouble]:
    name = str(pod["metadata"]["name"])
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        reason = scheduled.get("message") or scheduled.get("reason") or "no reason given"
        yield Trouble(name=name, container="", text=f"is placed on no node: {reason}")
    for container, status in _statuses(pod):
        waiting = _waiting(status)
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        ended = _ended(status)
        restarts = int(status.get("restartCount", 0))
        if reason in IMAGE:
            image = status.get("image", "its image")
            yield Trouble(
                name=name,
                container=container,
                text=f"has no image {image}: {message or reason}",
                final=reason in NEVER,
            )
        elif reason in FAILING:
            yield Trouble(name=name, container=container, text=f"cannot start: {message or reason}")
        elif ended and (
            _loops(status) or ((restarts or not _restarts(pod)) and not status.get("ready"))
        ):
            yield Trouble(
                name=name,
                container=container,
                text=f"ended{f' {restarts} times' if restarts > 1 else ''} ({ended})",
                final=restarts >= STARTS_LIMIT and not status.get("ready"),
                logs=True,
            )
    if not pod["status"].get("containerStatuses") and pod["status"].get("phase") == "Failed":
        said = pod["status"].get("message") or pod["status"].get("reason") or "no reason given"
        yield Trouble(name=name, container="", text=f"failed: {said}")


def loops(pod: Pod) -> bool:
    """Return whether a container of a pod keeps ending, though it may be ready now."""
    return any(_loops(status) for _, status in _statuses(pod))


def _loops(status: Mapping[str, Any]) -> bool:
    running = (status.get("state") or {}).get("running") or {}
    if not _ended(status) or not running.get("startedAt"):
        return False
    before = status["lastState"]["terminated"]  # restarts are counted over its whole life
    if _seconds(before.get("startedAt"), before.get("finishedAt")) > WINDOW_SECONDS:
        return False
    up = _seconds(running["startedAt"], datetime.now(UTC).isoformat())
    return keeps_ending(int(status.get("restartCount", 0)), up)


def _seconds(since: str | None, until: str | None) -> float:
    if not since or not until:
        return 0.0
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


def _restarts(pod: Pod) -> bool:
    return bool(pod["spec"].get("restartPolicy", "Always") != "Never")


def _ended(status: Mapping[str, Any]) -> str:
    """Return how a container failed, now or the last time; "" if it did not."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        if ended := state.get("terminated"):
            code, reason = ended.get("exitCode", 0), ended.get("reason", "")
            if code == 0 and reason != "OOMKilled":
                return ""
            why = ", out of memory" if reason == "OOMKilled" else ""
            return f"exit code {code}{why}"
    return ""


def _statuses(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for status in pod["status"].get(key) or []:
            yield str(status["name"]), status


def _waiting(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return (status.get("state") or {}).get("waiting") or {}


def _condition(pod: Pod, kind: str) -> Mapping[str, Any]:
    found = pod["status"].get("conditions") or []
    return next((each for each in found if each["type"] == kind), {})
