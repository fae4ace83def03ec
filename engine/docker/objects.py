"""Networks, volumes and images of a Docker Engine."""

from collections import deque
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from docker.utils import parse_repository_tag

from engine.docker.connection import Resources, explained, fetch_image, from_labels, look, to_labels
from engine.docker.schema import without_notes
from engine.errors import EngineError
from engine.providers import Live
from engine.values import Properties

SHOWN_LINES = 20  # of a failed build


class Network(Resources):
    """Networks."""

    def create(self, news: Properties) -> Live:
        with explained(f"network {news['name']}"):
            made = self._client.create_network(
                news["name"],
                driver=news.get("driver"),
                ipam={"Driver": news["ipamDriver"]},
                check_duplicate=True,
                labels=to_labels(news.get("labels", [])),
            )
            # The Engine completes a killed operation's request, and lets two have one name.
            for id_ in self._ids(news):
                if id_ != made["Id"]:
                    self._client.remove_network(id_)
            return self._live(made["Id"])

    def find(self, news: Properties) -> Live | None:
        with explained(f"network {news['name']}"):
            found = self._ids(news)
            return self._live(found[0]) if found else None

    def _ids(self, news: Properties) -> list[str]:
        wanted = to_labels(news.get("labels", []))
        return [
            network["Id"]
            for network in self._client.networks(names=[news["name"]])
            if network["Name"] == news["name"] and network["Labels"] == wanted
        ]

    def read(self, id_: str, olds: Properties) -> Live | None:
        return look(f"network {olds['name']}", lambda: self._live(id_))

    def delete(self, id_: str, olds: Properties) -> None:
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


class Volume(Resources):
    """Volumes."""

    def create(self, news: Properties) -> Live:
        """An existing volume of the name is taken over, as by the plugin."""
        name, labels = news["name"], to_labels(news.get("labels", []))
        with explained(f"volume {name}"):
            self._client.create_volume(name, driver_opts=news.get("driverOpts"), labels=labels)
            return _volume(self._client.inspect_volume(name))

    def find(self, news: Properties) -> Live | None:
        return self.read(news["name"], news)

    def read(self, id_: str, _olds: Properties) -> Live | None:
        return look(f"volume {id_}", lambda: _volume(self._client.inspect_volume(id_)))

    def delete(self, id_: str, _olds: Properties) -> None:
        look(f"volume {id_}", lambda: self._client.remove_volume(id_))


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


class Image(Resources):
    """Images: built from a folder, or pulled."""

    def create(self, news: Properties) -> Live:
        with explained(f"image {news['name']}"):
            if "build" in news:
                self._build(news["name"], news["build"])
            return self._live(fetch_image(self._client, news["name"], self._say), news)

    def find(self, news: Properties) -> Live | None:
        """An image of the name may be an older build, so it is built again."""
        return None if "build" in news else self.read("", news)

    def read(self, _id: str, olds: Properties) -> Live | None:
        name = olds["name"]
        return look(f"image {name}", lambda: self._live(self._client.inspect_image(name), olds))

    def update(self, _id: str, _olds: Properties, news: Properties) -> Properties:
        with explained(f"image {news['name']}"):
            return self._live(fetch_image(self._client, news["name"], self._say), news).outputs

    def delete(self, _id: str, _olds: Properties) -> None:
        """An image stays, as keepLocally says."""

    def _build(self, name: str, build: Properties) -> None:
        folder = Path(build["context"]).expanduser()
        if not folder.is_dir():
            raise EngineError(f"image {name}: build context {folder.absolute()} is not a folder")
        if not (folder / build["dockerfile"]).is_file():
            raise EngineError(f"image {name}: {folder.absolute()}/{build['dockerfile']} is missing")
        last: deque[str] = deque(maxlen=SHOWN_LINES)
        for part in self._client.build(
            path=str(folder),
            tag=name,
            dockerfile=build["dockerfile"],
            buildargs=build.get("buildArgs"),
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

    def _live(self, found: dict[str, Any], props: Properties) -> Live:
        kept = ("name", "keepLocally", "build")
        outputs = without_notes({key: props[key] for key in kept if key in props})
        digests = found["RepoDigests"] or [""]
        repository = parse_repository_tag(props["name"])[0]
        digest = next((d for d in digests if d.startswith(f"{repository}@")), digests[0])
        id_ = found["Id"] + props["name"]
        return Live(
            id=id_, outputs=outputs | {"id": id_, "imageId": found["Id"], "repoDigest": digest}
        )
