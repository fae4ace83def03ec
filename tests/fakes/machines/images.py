"""Gives a machine's Docker Engine images of this machine's, as links to the files of their layers.

`docker save` and `docker load` of an image with PyTorch take minutes, and its size on the disk. The
Engine of the machine has to be stopped; it reads them when it starts.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes.machines.machines import Machines

BUILD = Path(__file__).parents[2] / "images" / "build.py"
UP = "for _ in $(seq 300); do docker version >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1"
DOWN = "kill $(cat /var/run/docker.pid); while [ -e /var/run/docker.pid ]; do sleep 0.1; done"
START = "setsid dockerd >/var/log/dockerd.log 2>&1 </dev/null &"
IMAGES, LAYERS = Path("image/overlay2/imagedb"), Path("image/overlay2/layerdb/sha256")
FILES = Path("overlay2")
# An Engine mounts its folder on itself, and links do not cross mounts: so both are reached through
# one more mount, which ends with this command. Files of another disk are copied.
COPY = """
mount --bind / /mnt && cd "/mnt$1" && to=/mnt$2 && shift 2 &&
{ cp --archive --parents --link "$@" "$to" 2>/dev/null || cp --archive --parents "$@" "$to"; }
"""


def name(program: str) -> str:
    """Return the name of a test's image of a program."""
    return f"trainyard-test/{program}:latest"


def build(*programs: str) -> None:
    """Build images on this machine's Engine, and what they are built from."""
    subprocess.run([sys.executable, BUILD, "base", *programs], check=True)


def give(machines: "Machines", instance_id: str, *programs: str) -> None:
    """Give a booted machine's Engine the images of programs."""
    machines.exec(instance_id, f"({UP}) && {DOWN}")
    link([name(each) for each in ("base", *programs)], machines.folder / instance_id / "docker")
    machines.exec(instance_id, f"{START} {UP}")


def link(names: Sequence[str], target: Path) -> None:
    """Link images, and those that they were built from, which make a build there a quick one.

    The Engines of both have the driver overlay2, and the other one has no images.
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
