"""The accelerators of this machine, and how a container reaches its own.

Pure functions read the output of tools and the lists of the kernel, so that any machine can be
tested on any other. Deliberately absent: sharing a device between workers, and Engines on other
machines.
"""

import contextlib
import csv
import grp
import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

TOOL_SECONDS = 10
NVIDIA_QUERY = ("index", "uuid", "name", "mig.mode.current")
NVIDIA_SMI = ("nvidia-smi", f"--query-gpu={','.join(NVIDIA_QUERY)}", "--format=csv,noheader")
NVIDIA_LIST = ("nvidia-smi", "-L")
ROCM_SMI = ("rocm-smi", "--showproductname", "--showbus", "--json")
# The Engine calls this when a container asks for NVIDIA's devices.
NVIDIA_HOOK = "nvidia-container-runtime-hook"
NVIDIA_CDI = "nvidia.com/gpu="
AMD_VENDOR = 0x1002
KFD = "/dev/kfd"  # all AMD GPUs compute through it; the render nodes tell them apart
KFD_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
RENDER_NODES = Path("/dev/dri")
WSL = Path("/dev/dxg")  # all GPUs in one
SHOWN = 8  # devices that a message lists
LOOK_AT = {
    "nvidia": "look at the output of `nvidia-smi`",
    "amd": f"look whether the driver amdgpu has made {KFD} and {RENDER_NODES}/renderD128",
}


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or one part of an NVIDIA GPU that was divided (MIG).

    Attributes:
        index: its place among the devices of this machine, from 0.
        kind: "nvidia" or "amd".
        uuid: "" where the driver tells none.
        path: its render node; "" where a container asks for it by its UUID.
    """

    index: int
    kind: str
    name: str
    uuid: str
    path: str

    def __str__(self) -> str:
        return f"{self.name}, {self.uuid or self.path}"


@dataclass(frozen=True, kw_only=True)
class ContainerAccess:
    """A container's access to one device and no other.

    Attributes:
        gpus: the ID of an NVIDIA device; empty for AMD's.
        groups: numeric groups that may open them.
    """

    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class AcceleratorError(pulumi.RunError):
    """The accelerators that the settings ask for are not available; the message says why."""

    def __init__(self, accelerator: str, reason: str, action: str) -> None:
        super().__init__(
            f"accelerator = {accelerator!r}: {reason}; {action}, or set accelerator to none"
        )


def choose(
    accelerator: str, wanted: Sequence[float], engine: Mapping[str, Any]
) -> tuple[tuple[ContainerAccess, ...], tuple[tuple[int, ...], ...]]:
    """Give each worker its own devices, of those of this machine.

    The accelerator is none, nvidia or amd, `wanted` each worker's number of devices, and `engine`
    the answer of the Docker Engine's API to /info.

    Returns:
        A container's access to each device, and the indexes of each worker's devices.

    Raises:
        AcceleratorError: there are too few, or the Engine cannot hand them to containers.
    """
    if accelerator == "none":
        return (), ((),) * len(wanted)
    place = os.environ.get("DOCKER_HOST", "")
    if place and not place.startswith("unix://"):
        reason = f"the devices of the Docker Engine at {place} cannot be looked at from here"
        raise AcceleratorError(accelerator, reason, "run this on its machine")
    if accelerator == "nvidia":
        devices = parse_nvidia(_run(accelerator, NVIDIA_SMI), _run(accelerator, NVIDIA_LIST))
        assigned = assign(accelerator, devices, wanted, undivided=WSL.exists())
        check_toolkit(engine, hook=shutil.which(NVIDIA_HOOK) is not None)
    else:
        devices = parse_amd(_topology(), _nodes(), parse_rocm_smi(_rocm_smi()))
        assigned = assign(accelerator, devices, wanted)
    groups = _groups(devices)
    return tuple(access(device, groups) for device in devices), assigned


def all_of(
    accelerator: str,
) -> tuple[tuple[ContainerAccess, ...], tuple[tuple[int, ...], ...]]:
    """Give the one worker of another machine all of its devices; see choose."""
    if accelerator == "none":
        return (), ((),)
    return (ContainerAccess(gpus=("all",)),), ((0,),)


def check_machine(accelerator: str, name: str, gpus: int, engine: Mapping[str, Any]) -> None:
    """Raise if another machine, whose driver lists GPUs, lacks them for its containers.

    Raises:
        AcceleratorError: says what is missing.
    """
    if accelerator != "none":
        if not gpus:
            raise AcceleratorError(accelerator, f"{name} has no GPUs", "install the driver there")
        check_toolkit(engine, hook=False)
    elif gpus:
        pulumi.log.warn(f"{name} has {gpus} GPUs that no container sees: set accelerator to nvidia")


def parse_nvidia(query: str, listing: str) -> tuple[Device, ...]:
    """Return the devices in the outputs of NVIDIA_SMI and of NVIDIA_LIST.

    A divided GPU counts as its parts, which only the list has.
    """
    parts: dict[str, list[tuple[str, str]]] = {}
    gpu = ""
    for line in listing.splitlines():
        if found := re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            gpu = found[1]
        elif found := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            parts.setdefault(gpu, []).append((found[1], found[2]))
    devices: list[Device] = []
    for row in csv.reader(query.splitlines(), skipinitialspace=True):
        # nvidia-smi also prints remarks, such as one on a GPU that no longer answers.
        if len(row) != len(NVIDIA_QUERY) or not row[0].isdecimal():
            continue
        _, uuid, name, mig = (field.strip() for field in row)
        divided = [(f"{name} MIG {profile}", part) for profile, part in parts.get(uuid, [])]
        # CUDA can use only the parts of a GPU that is set to be divided.
        usable = divided if mig == "Enabled" else [(name, uuid)]
        devices += [
            Device(index=index, kind="nvidia", name=title, uuid=identity, path="")
            for index, (title, identity) in enumerate(usable, start=len(devices))
        ]
    return tuple(devices)


def parse_amd(
    topology: Mapping[int, str], nodes: Collection[str], names: Mapping[str, str]
) -> tuple[Device, ...]:
    """Return the AMD GPUs in ROCm's order.

    `topology` has the kernel's properties of each node, `nodes` the paths of the device nodes that
    exist, `names` product names by PCI address.
    """
    devices: list[Device] = []
    for _, text in sorted(topology.items()):
        values = {key: int(value) for key, value in re.findall(r"(?m)^(\w+) (\d+)$", text)}
        path = f"/dev/dri/renderD{values.get('drm_render_minor', 0)}"
        # The topology lists CPUs too, and GPUs whose nodes this machine or container does not have.
        if values.get("vendor_id") != AMD_VENDOR or not {path, KFD} <= set(nodes):
            continue
        unique = values.get("unique_id", 0)
        devices.append(
            Device(
                index=len(devices),
                kind="amd",
                name=names.get(_pci_address(values)) or _architecture(values),
                uuid=f"GPU-{unique:016x}" if unique else "",
                path=path,
            )
        )
    return tuple(devices)


def parse_rocm_smi(text: str) -> dict[str, str]:
    """Return product names by PCI address from ROCM_SMI's output, {} if that is not JSON."""
    try:
        # Some versions print warnings first.
        cards = json.loads(text[text.index("{") :])
    except ValueError:
        return {}
    names: dict[str, str] = {}
    for card in cards.values():
        if not isinstance(card, dict):
            continue
        fields = {key.lower(): value for key, value in card.items()}
        candidates = [fields.get(key, "") for key in ("card series", "card model", "device name")]
        # A product without a name shows as its number, or as N/A.
        told = [name for name in candidates if name and not re.fullmatch(r"0x\w+|N/A", name)]
        if told and "pci bus" in fields:
            names[fields["pci bus"].lower()] = told[0]
    return names


def assign(
    accelerator: str,
    devices: Sequence[Device],
    wanted: Sequence[float],
    *,
    undivided: bool = False,
) -> tuple[tuple[int, ...], ...]:
    """Return the indexes of each worker's devices: the first ones for the first worker, and so on.

    All workers want as many. Undivided is a machine where a container that reaches one device
    reaches all.

    Raises:
        AcceleratorError: there are too few.
    """
    each, total = int(wanted[0]), int(sum(wanted))
    found = ("; ".join(str(device) for device in devices[:SHOWN])) or "none"
    if len(devices) > SHOWN:
        found += "; …"
    if total > len(devices):
        workers = f"{len(wanted)} worker{'s' if len(wanted) > 1 else ''}"
        gpus = f"{each} GPU{'s' if each > 1 else ''}"
        reason = (
            f"{workers} with {gpus} each need {total} device{'s' if total > 1 else ''}, "
            f"this machine has {len(devices)} ({found})"
        )
        action = _fitting(len(devices), each, len(wanted)) or LOOK_AT[accelerator]
        raise AcceleratorError(accelerator, reason, action)
    if undivided and len(devices) > 1:
        reason = f"on WSL 2 a container reaches all {len(devices)} devices ({found}), not its own"
        raise AcceleratorError(accelerator, reason, "use a machine that runs Linux natively")
    return tuple(
        tuple(range(worker * each, (worker + 1) * each)) for worker, _ in enumerate(wanted)
    )


def access(device: Device, groups: Mapping[str, str]) -> ContainerAccess:
    """Return a container's access to a device, by the numeric group of each device node."""
    if device.kind == "nvidia":
        return ContainerAccess(gpus=(device.uuid,))
    nodes = (KFD, device.path)
    return ContainerAccess(
        devices=nodes,
        groups=tuple(dict.fromkeys(groups[key] for key in (*nodes, "video") if key in groups)),
    )


def check_toolkit(engine: Mapping[str, Any], *, hook: bool) -> None:
    """Raise if the Docker Engine, by its answer to /info, cannot hand out NVIDIA's devices.

    It uses NVIDIA_HOOK on PATH even where the runtime that comes with that is not configured.

    Raises:
        AcceleratorError: says which toolkit to install.
    """
    discovered = engine.get("DiscoveredDevices") or []
    cdi = any(str(device.get("ID", "")).startswith(NVIDIA_CDI) for device in discovered)
    if not hook and not cdi and "nvidia" not in (engine.get("Runtimes") or {}):
        raise AcceleratorError(
            "nvidia",
            "the Docker Engine cannot hand GPUs to containers: the NVIDIA Container Toolkit is "
            "missing",
            "install the package nvidia-container-toolkit, run `sudo nvidia-ctk runtime configure "
            "--runtime=docker` and restart Docker",
        )


def _fitting(found: int, each: int, workers: int) -> str:
    if not found:
        return ""
    if found >= each:
        return f"set workers to {found // each}"
    if found >= workers:
        return f"set worker.gpus to {found // workers}"
    return f"set worker.gpus to 1 and workers to {found}"


def _pci_address(values: Mapping[str, int]) -> str:
    place = values.get("location_id", 0)
    bus, slot, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 0x7
    return f"{values.get('domain', 0):04x}:{bus:02x}:{slot:02x}.{function}"


def _architecture(values: Mapping[str, int]) -> str:
    version = values.get("gfx_target_version", 0)
    return f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _run(accelerator: str, command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
    except FileNotFoundError:
        reason = f"{command[0]} is not on PATH"
        raise AcceleratorError(accelerator, reason, "install the driver of the GPU") from None
    except subprocess.TimeoutExpired:
        reason = f"{command[0]} does not answer within {TOOL_SECONDS} s"
        raise AcceleratorError(accelerator, reason, "restart the machine") from None
    if done.returncode:
        said = " ".join(f"{done.stdout} {done.stderr}".split()) or f"exit code {done.returncode}"
        action = "repair the driver (after an update of it, restart the machine)"
        raise AcceleratorError(accelerator, f"{command[0]} fails ({said})", action)
    return done.stdout


def _rocm_smi() -> str:
    """Return rocm-smi's output: it gives only names, so ROCm need not be installed."""
    try:
        return _run("amd", ROCM_SMI)
    except AcceleratorError:
        return ""


def _topology() -> dict[int, str]:
    """Return the kernel's properties of each node that this user, or container, may see."""
    nodes: dict[int, str] = {}
    for folder in KFD_TOPOLOGY.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            nodes[int(folder.name)] = (folder / "properties").read_text()
    return nodes


def _nodes() -> list[str]:
    paths = [Path(KFD), *RENDER_NODES.glob("renderD*")]
    return [str(path) for path in paths if path.exists()]


def _groups(devices: Sequence[Device]) -> dict[str, str]:
    """Return the numeric groups of AMD's device nodes, and of the group video.

    Numbers, because an image knows no group of this machine by its name; never root's, which would
    open more than a device.
    """
    paths = [KFD, *(device.path for device in devices)] if devices and devices[0].path else []
    groups = {path: Path(path).stat().st_gid for path in paths}
    with contextlib.suppress(KeyError):
        groups["video"] = grp.getgrnam("video").gr_gid
    return {key: str(group) for key, group in groups.items() if group}
