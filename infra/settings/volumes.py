"""Folders from outside the stack, such as data sets: the setting `volumes`, in every place."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from cluster.model import ABSOLUTE, NAMES, Fault, Items, Meaning, Model, matching
from cluster.service import Volume

NAME = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
CLAIM = "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
NFS = r"[A-Za-z0-9][A-Za-z0-9.-]*:/[^\s:,]*"
# A mount would hide what images and our runtimes have in these.
NAMES_OF_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")
SYSTEM = [Path("/", name) for name in (*NAMES_OF_SYSTEM, "var/lib/trainyard")]


class GivenVolume(Model):
    """A folder that jobs and the notebook find at `mount` (default: `path`) on each node."""

    name: Annotated[str, matching(NAME, "must be lowercase letters, digits and -", "rename it")]
    path: Annotated[str, ABSOLUTE] = ""
    nfs: Annotated[str, matching(NFS, "must be SERVER:/folder", "write it so")] = ""
    claim: Annotated[str, matching(CLAIM, "must be a name as kubectl shows it", "write it so")] = ""
    mount: Annotated[str, ABSOLUTE] = Field(default_factory=lambda fields: fields["path"])
    read_only: bool = True

    def faults(self) -> Iterator[Fault]:
        """Yield two kinds or none, and a mount that is missing or hides a system's folder."""
        mount, other = Path(self.mount), f"choose another, such as /data/{self.name}"
        if len(self.volume.source) != 1:
            bound = "must have one of path, nfs and claim; a bucket is read by the job itself"
            yield Fault("", bound, "write one of them", NAMES)
        elif not self.mount:
            yield Fault("mount", "must be set with nfs or claim", "set it to where jobs look")
        elif hidden := [s for s in SYSTEM if mount in (s, *s.parents) or s in mount.parents]:
            yield Fault("mount", f"hides {hidden[0]}, a folder of the system", other, self.mount)

    @property
    def volume(self) -> Volume:
        kinds = {"path": self.path, "nfs": self.nfs, "claim": self.claim}
        source = {kind: where for kind, where in kinds.items() if where}
        return Volume(name=self.name, read_only=self.read_only, mount=self.mount, source=source)


Volumes = Annotated[
    Items[GivenVolume], Meaning("must be an array", "write [{name: mine, path: /data/mine}]")
]


def faults(volumes: Sequence[GivenVolume], runtime: str, *, here: bool) -> Iterator[Fault]:
    """Yield volumes that are in each other's way, or that the place, perhaps here, lacks."""
    for index, each in enumerate(volumes):
        key, bound, action = f"volumes[{index}]", "", "use another kind"
        if any(each.name == it.name or each.mount == it.mount for it in volumes[:index]):
            bound, action = "has the name or the mount of an earlier one", "change that"
        elif each.claim and runtime in ("auto", "docker", "process"):
            bound = f"is a claim of Kubernetes, and runtime = {runtime!r}"
        elif runtime == "process" and each.mount != each.path:
            bound = "is mounted, and processes mount nothing: they need path alone"
            action = "mount it on each machine, and write its path"
        elif each.path and here and not Path(each.path).is_dir():
            bound, action = "is not a folder of this machine", "make or mount it, or name another"
        if bound:
            yield Fault(key, bound, action, each.path or each.nfs or each.claim)


def checks(volumes: Sequence[GivenVolume]) -> list[str]:
    """Return commands for other machines' shell that fail where a folder is missing."""
    text = 'is not a folder of $(hostname): make or mount it, or change volumes" >&2; exit 1; }'
    return [
        f'test -d {path} || {{ echo {path} "{text}'
        for path in (shlex.quote(each.path) for each in volumes)
    ]
