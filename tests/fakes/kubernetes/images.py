"""Images of the Docker Engine for the node's containerd, without a copy of their content.

An image becomes an archive of only its description; its layers are the Engine's own folders,
which `enter.py` mounts read-only where containerd keeps unpacked layers. To save and import them
instead would read and write PyTorch's gigabytes three times.
"""

import hashlib
import io
import json
import subprocess
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes.errors import NoKubernetesError
from tests.images import build

# For each pod one container that only keeps its namespaces: Kubernetes calls it pause.
PAUSE = "trainyard-test/pause:latest"
CONFIGURED = ("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Labels", "ExposedPorts")
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Layer:
    """One layer of an image.

    Attributes:
        chain: by which containerd knows the layer on top of those below it.
        below: the same of the layer below, "" of the first.
        folder: of the Engine, with its files.
    """

    chain: str
    below: str
    folder: str


@dataclass(frozen=True)
class Image:
    """An image as the node takes it: the archive with its description, and its layers."""

    archive: str
    layers: list[Layer]


def of_engine(folder: Path) -> list[dict[str, Any]]:
    """Return all images of `tests/images` that the Engine has, as archives, and the one for pauses.

    Raises:
        NoKubernetesError: no Engine answers, or it keeps layers in another way.
    """
    names = [f"{build.PREFIX}{name}:latest" for name in build.RECIPES]
    base = f"{build.PREFIX}base:latest"
    found = {tag: image for image in _inspect(names) for tag in image["RepoTags"]}
    if base not in found:
        raise NoKubernetesError(f"no image {base}: make it with `python tests/images/build.py`")
    images = {PAUSE: {**found[base], "Config": {"Entrypoint": ["/bin/sleep", "infinity"]}}}
    images |= {tag: image for tag, image in found.items() if tag in names}
    return [asdict(_image(tag, image, folder)) for tag, image in images.items()]


def _inspect(names: list[str]) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            ["docker", "image", "inspect", *names], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise NoKubernetesError("no docker on PATH, whose images pods run") from None
    images: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    if not images:
        raise NoKubernetesError(
            f"no images for pods: `python tests/images/build.py` makes them ({done.stderr.strip()})"
        )
    return images


def _image(tag: str, image: dict[str, Any], folder: Path) -> Image:
    driver = image["GraphDriver"]
    if driver["Name"] != "overlay2":
        raise NoKubernetesError(
            f"the Docker Engine keeps images by {driver['Name']}; pods need the layers of overlay2"
        )
    below = driver["Data"].get("LowerDir", "")
    folders = [driver["Data"]["UpperDir"], *filter(None, below.split(":"))][::-1]
    digests = image["RootFS"]["Layers"]
    if len(folders) != len(digests):
        raise NoKubernetesError(f"{tag} has {len(digests)} layers in {len(folders)} folders")
    layers: list[Layer] = []
    for path, digest in zip(folders, digests, strict=True):
        last = layers[-1].chain if layers else ""
        chain = _digest(f"{last} {digest}".encode()) if last else digest
        layers.append(Layer(chain, last, path))
    archive = folder / f"{tag.partition(':')[0].replace('/', '-')}.tar"
    _describe(tag, image, archive)
    return Image(str(archive), layers)


def _describe(tag: str, image: dict[str, Any], archive: Path) -> None:
    """Write an image in OCI's layout, without its layers."""
    digests = image["RootFS"]["Layers"]
    config = _json(
        {
            "architecture": image["Architecture"],
            "os": image["Os"],
            "config": {
                name: image["Config"][name] for name in CONFIGURED if image["Config"].get(name)
            },
            "rootfs": {"type": "layers", "diff_ids": digests},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, config),
            # Nobody reads them: their unpacked content is there.
            "layers": [{"mediaType": LAYER_TYPE, "digest": one, "size": 1} for one in digests],
        }
    )
    name = {"io.containerd.image.name": f"docker.io/{tag}"}
    index = {
        "schemaVersion": 2,
        "manifests": [{**_descriptor(MANIFEST_TYPE, manifest), "annotations": name}],
    }
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    for blob in (config, manifest):
        files[f"blobs/{_digest(blob).replace(':', '/')}"] = blob
    with tarfile.open(archive, "w") as target:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            target.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
