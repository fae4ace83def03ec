"""Whether the services of a stack are well, where they are programs of this machine.

`train info` asks each time, so this loads no Pulumi. It takes no other service for well: what is
wrong with which, `infra.operate.drift` tells.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine import outputs
from engine.passphrase import passphrase
from engine.state import Entry, is_living
from engine.values import reveal
from node.programs import KINDS

HEALTH = ("healthy", "ready")  # outputs that tell whether a service was well
PARALLEL = 8
PROGRAMS = {"process:Supervisor": "daemon", "process:Program": "program"}  # the kinds by type


def all_well(folder: Path, stack: str) -> bool:
    """Return whether a stack has services, and each is as its state says, and well.

    Raises:
        EngineError: its state cannot be read.
        BucketError: the same.
    """
    project, name, backend = outputs.place(folder, stack)
    if not backend.exists(project.name, name) or backend.in_use_by(project.name, name):
        return False
    resources = backend.load(project.name, name, passphrase()).resources
    services = [each for each in resources if is_living(each) and is_service(each)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        return bool(services) and all(pool.map(_is_well, services))


def is_service(entry: Entry) -> bool:
    """Return whether the state says of a resource whether it was well."""
    return bool(entry.get("outputs", {}).keys() & {*HEALTH})


def _is_well(entry: Entry) -> bool:
    kind = PROGRAMS.get(entry["type"].rpartition("/")[2])
    props = reveal(entry["outputs"])
    if not kind or "host" in props or not props["healthy"]:
        return False
    return bool(KINDS[kind].read(entry["id"], props) == props)
