"""The places that give a stack other machines, and those among them that rent machines out.

A source's settings are imported alone. They import anything else, such as an HTTP client, when it
is used: a stack of this machine does not pay for it.
"""

from infra import places
from infra.machines.source import Cloud, MachineSource

SOURCES: tuple[MachineSource, ...] = tuple(module.SOURCE for module in places.modules("settings"))
CLOUDS: tuple[Cloud, ...] = tuple(source.cloud for source in SOURCES if source.cloud)


def types(*names: str) -> set[str]:
    """Return the types of resources of these names in all clouds, such as `cloud:Instance`."""
    return {f"{cloud.module}:{name}" for cloud in CLOUDS for name in names}
