"""Gives a machine's Docker Engine images of this machine's, as links to the files of their layers.

`docker save` and `docker load` of an image with PyTorch take minutes, and its size on the disk. The
Engine of the machine has to be stopped; it reads them when it starts.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGES, LAYERS = Path("image/overlay2/imagedb"), Path("image/overlay2/layerdb/sha256")
FILES = Path("overlay2")
# An Engine mounts its folder on itself, and links do not cross mounts: so both are reached through
# one more mount, which ends with this command. Files of another disk are copied.
COPY = """
mount --bind / /mnt && cd "/mnt$1" && to=/mnt$2 && shift 2 &&
{ cp --archive --parents --link "$@" "$to" 2>/dev/null || cp --archive --parents "$@" "$to"; }
"""


def link(names: Sequence[str], target: Path) -> None:
    """Link images, and those that they were built from, which make a build there a quick one.

    Args:
        names: of images of this machine's Engine, whose driver is overlay2.
        target: data folder of the other Engine, which has none.
    """
    source = Path(_docker("info", "--format={{.DockerRootDir}}"))
    repositories: dict[str, dict[str, str]] = {}
    paths: dict[Path, None] = {}
    for name in names:
        image = _inspect(name)
        repositories.setdefault(name.rpartition(":")[0], {})[name] = image["Id"]
        paths |= dict.fromkeys(_files(image, source))
        while image["Parent"]:
            image = _inspect(image["Parent"])
            paths |= dict.fromkeys(_files(image, source))
    there = [path for path in paths if (source / path).exists()]
    command = ["unshare", "--mount", "sh", "-c", COPY, "sh", source, target, *there]
    subprocess.run(command, check=True)
    file = target / IMAGES.parent / "repositories.json"
    file.write_text(json.dumps({"Repositories": repositories}))


def _files(image: Mapping[str, Any], source: Path) -> Iterator[Path]:
    """Yield the Engine's files and folders of an image, in its data folder."""
    digest = image["Id"].partition(":")[2]
    yield from (IMAGES / kind / "sha256" / digest for kind in ("content", "metadata"))
    chain = ""
    for layer in image["RootFS"]["Layers"]:
        # The Engine's name of a layer is a digest of all those below it.
        below = hashlib.sha256(f"{chain} {layer}".encode()).hexdigest()
        chain = f"sha256:{below}" if chain else layer
        record = LAYERS / chain.partition(":")[2]
        folder = FILES / (source / record / "cache-id").read_text()
        yield from (record, folder, FILES / "l" / (source / folder / "link").read_text())


def _inspect(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_docker("image", "inspect", name))[0]
    return found


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
