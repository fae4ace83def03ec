"""Networks, volumes and images of a Docker Engine, and how it is reached."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.utils import parse_repository_tag, version_lt
from requests import RequestException

from engine.docker_schema import without_notes
from engine.errors import EngineError
from engine.providers import Live
from engine.values import Properties

if TYPE_CHECKING:
    from engine.docker_provider import Actions, Say

OLDEST_API = "1.41"  # Docker Engine 20.10
SHOWN_LINES = 20  # of a failed build


def actions_of(type_: str, say: Say) -> Actions:
    """What does the work for a type.

    Raises:
        EngineError: no Docker Engine that can be used.
    """
    from engine.docker_container import Container  # noqa: PLC0415 it imports this module

    kinds: dict[str, Callable[[Any, Say], Actions]] = {
        "docker:index/network:Network": Network,
        "docker:index/volume:Volume": Volume,
        "docker:index/remoteImage:RemoteImage": Image,
        "docker:index/container:Container": Container,
    }
    return kinds[type_](connect(), say)


@functools.cache
def connect() -> Any:
    """A client of the Docker Engine that DOCKER_HOST names, else of this machine's.

    Raises:
        EngineError: it is absent, too old, or closed to this user.
    """
    settings = docker.utils.kwargs_from_env()
    host = settings.setdefault("base_url", "unix:///var/run/docker.sock")
    try:
        client = docker.APIClient(**settings, use_ssh_client=True)
    except DockerException as error:
        if "Permission denied" in str(error):
            raise EngineError(
                f"no permission for the Docker Engine at {host}; join the group docker (sudo "
                "usermod -aG docker $USER) and log in again"
            ) from None
        raise EngineError(
            f"no Docker Engine answers at {host} ({error}); start it, or set DOCKER_HOST to one"
        ) from None
    if version_lt(client.api_version, OLDEST_API):
        raise EngineError(
            f"the Docker Engine at {host} has API {client.api_version}; at least {OLDEST_API} "
            "(Docker Engine 20.10) is needed: upgrade it"
        )
    return client


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what Docker says went wrong into one message about `what`."""
    try:
        yield
    except (DockerException, RequestException) as error:
        reason = error.explanation if isinstance(error, APIError) else None
        raise EngineError(f"{what}: {reason or error}") from None


def to_labels(labels: list[Properties]) -> dict[str, str]:
    """Docker's form of labels."""
    return {label["label"]: label["value"] for label in labels}


def from_labels(labels: dict[str, str] | None) -> list[Properties]:
    """The plugin's form of labels."""
    return [{"label": key, "value": value} for key, value in sorted((labels or {}).items())]


def fetch_image(client: Any, name: str, say: Say) -> Properties:
    """The image, pulled when this machine lacks it.

    Raises:
        EngineError: it cannot be had.
    """
    found: dict[str, Any]
    try:
        found = client.inspect_image(name)
    except NotFound:
        pass
    else:
        return found
    say("info", f"pulling the image {name}")
    repository, tag = parse_repository_tag(name)
    try:
        for line in client.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise DockerException(line["error"])
        found = client.inspect_image(name)
    except (DockerException, RequestException) as error:
        reason = getattr(error, "explanation", None) or error
        raise EngineError(
            f"the image {name} is not on this machine and cannot be pulled ({reason}); load it "
            "(docker load), tag it so, or name another one"
        ) from None
    return found


class Network:
    """Networks."""

    def __init__(self, client: Any, _say: Say) -> None:
        self._client = client

    def create(self, news: Properties) -> Live:
        """See Provider."""
        with explained(f"network {news['name']}"):
            made = self._client.create_network(
                news["name"],
                driver=news.get("driver"),
                options=news.get("options"),
                ipam={"Driver": news["ipamDriver"]},
                check_duplicate=True,
                internal=news.get("internal", False),
                attachable=news.get("attachable"),
                enable_ipv6=news.get("ipv6", False),
                labels=to_labels(news.get("labels", [])),
            )
            return self._live(made["Id"])

    def find(self, news: Properties) -> Live | None:
        """See Provider."""
        with explained(f"network {news['name']}"):
            wanted = to_labels(news.get("labels", []))
            for network in self._client.networks(names=[news["name"]]):
                if network["Name"] == news["name"] and network["Labels"] == wanted:
                    return self._live(network["Id"])
        return None

    def read(self, id_: str, olds: Properties) -> Live | None:
        """See Provider."""
        with explained(f"network {olds['name']}"):
            try:
                return self._live(id_)
            except NotFound:
                return None

    def update(self, _id: str, olds: Properties, _news: Properties) -> Properties:
        """See Provider: no change is made in place."""
        return olds

    def delete(self, id_: str, olds: Properties) -> None:
        """See Provider."""
        with explained(f"network {olds['name']}"):
            try:
                self._client.remove_network(id_)
            except NotFound:
                return
            except APIError as error:
                users = self._client.inspect_network(id_)["Containers"].values()
                names = ", ".join(sorted(user["Name"] for user in users))
                advice = f"; remove or disconnect {names}" if names else ""
                raise EngineError(f"{error.explanation}{advice}") from None

    def _live(self, id_: str) -> Live:
        found = self._client.inspect_network(id_)
        outputs = {
            "id": id_,
            "name": found["Name"],
            "driver": found["Driver"],
            "internal": found["Internal"],
            "attachable": found["Attachable"],
            "ingress": found["Ingress"],
            "ipv6": found["EnableIPv6"],
            "ipamDriver": found["IPAM"]["Driver"],
            "ipamOptions": found["IPAM"]["Options"] or {},
            "ipamConfigs": [
                {
                    "subnet": config.get("Subnet", ""),
                    "gateway": config.get("Gateway", ""),
                    "ipRange": config.get("IPRange", ""),
                    "auxAddress": config.get("AuxiliaryAddresses") or {},
                }
                for config in found["IPAM"]["Config"] or []
            ],
            "options": found["Options"] or {},
            "scope": found["Scope"],
            "labels": from_labels(found["Labels"]),
        }
        return Live(id=id_, outputs=outputs)


class Volume:
    """Volumes."""

    def __init__(self, client: Any, _say: Say) -> None:
        self._client = client

    def create(self, news: Properties) -> Live:
        """See Provider: one of the name that is there already is taken over, as by the plugin."""
        name, labels = news["name"], to_labels(news.get("labels", []))
        with explained(f"volume {name}"):
            self._client.create_volume(name, news.get("driver"), news.get("driverOpts"), labels)
            return _volume(self._client.inspect_volume(name))

    def find(self, news: Properties) -> Live | None:
        """See Provider."""
        return self.read(news["name"], news)

    def read(self, id_: str, _olds: Properties) -> Live | None:
        """See Provider."""
        with explained(f"volume {id_}"):
            try:
                return _volume(self._client.inspect_volume(id_))
            except NotFound:
                return None

    def update(self, _id: str, olds: Properties, _news: Properties) -> Properties:
        """See Provider: no change is made in place."""
        return olds

    def delete(self, id_: str, _olds: Properties) -> None:
        """See Provider."""
        with explained(f"volume {id_}"):
            try:
                self._client.remove_volume(id_)
            except NotFound:
                return


def _volume(found: dict[str, Any]) -> Live:
    outputs = {
        "id": found["Name"],
        "name": found["Name"],
        "driver": found["Driver"],
        "driverOpts": found["Options"] or {},
        "mountpoint": found["Mountpoint"],
        "labels": from_labels(found["Labels"]),
    }
    return Live(id=found["Name"], outputs=outputs)


class Image:
    """Images: built from a folder, or pulled."""

    def __init__(self, client: Any, say: Say) -> None:
        self._client = client
        self._say = say

    def create(self, news: Properties) -> Live:
        """See Provider."""
        with explained(f"image {news['name']}"):
            if "build" in news:
                self._build(news["name"], news["build"])
            return self._live(fetch_image(self._client, news["name"], self._say), news)

    def find(self, news: Properties) -> Live | None:
        """See Provider: an image of the name may be an older build, so it is built again."""
        return None if "build" in news else self.read("", news)

    def read(self, _id: str, olds: Properties) -> Live | None:
        """See Provider."""
        with explained(f"image {olds['name']}"):
            try:
                return self._live(self._client.inspect_image(olds["name"]), olds)
            except NotFound:
                return None

    def update(self, _id: str, _olds: Properties, news: Properties) -> Properties:
        """See Provider."""
        with explained(f"image {news['name']}"):
            return self._live(fetch_image(self._client, news["name"], self._say), news).outputs

    def delete(self, _id: str, olds: Properties) -> None:
        """See Provider."""
        if olds.get("keepLocally"):
            return
        with explained(f"image {olds['name']}"):
            try:
                current = self._client.inspect_image(olds["name"])["Id"] == olds["imageId"]
                # A replacement has the name by now.
                going = olds["name"] if current else olds["imageId"]
                self._client.remove_image(going, force=olds.get("forceRemove") or False)
            except NotFound:
                return

    def _build(self, name: str, build: Properties) -> None:
        folder = Path(build["context"]).expanduser()
        if not folder.is_dir():
            raise EngineError(f"image {name}: the build context {folder.absolute()} is no folder")
        if not (folder / build["dockerfile"]).is_file():
            raise EngineError(
                f"image {name}: there is no {folder.absolute()}/{build['dockerfile']}"
            )
        last: deque[str] = deque(maxlen=SHOWN_LINES)
        for part in self._client.build(
            path=str(folder),
            tag=name,
            dockerfile=build["dockerfile"],
            buildargs=build.get("buildArgs"),
            labels=build.get("label"),
            target=build.get("target"),
            network_mode=build.get("networkMode"),
            nocache=build.get("noCache") or False,
            pull=build.get("pullParent") or False,
            rm=build["remove"],
            forcerm=build.get("forceRemove") or False,
            decode=True,
        ):
            for line in str(part.get("stream", "")).splitlines():
                last.append(line)
                self._say("info" if line.startswith("Step ") else "debug", f"{name}: {line}")
            if "error" in part:
                output = "\n  ".join(last)
                raise EngineError(
                    f"image {name} cannot be built from {folder.absolute()}: {part['error']}; the "
                    f"last lines of its output:\n  {output}"
                )
        for tag in build.get("tags", []):
            self._client.tag(name, *parse_repository_tag(tag))

    def _live(self, found: dict[str, Any], props: Properties) -> Live:
        kept = ("name", "keepLocally", "forceRemove", "triggers", "build")
        outputs = without_notes({key: props[key] for key in kept if key in props})
        digests = found["RepoDigests"] or [""]
        repository = parse_repository_tag(props["name"])[0]
        digest = next((d for d in digests if d.startswith(f"{repository}@")), digests[0])
        id_ = found["Id"] + props["name"]
        return Live(
            id=id_, outputs=outputs | {"id": id_, "imageId": found["Id"], "repoDigest": digest}
        )
