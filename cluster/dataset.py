"""Food-11 in a volume: a program fills it once, checks the result and ends.

With `generate` it draws a small stand-in: as many classes, which can be learned, but no food.
"""

from functools import partial

from cluster.descriptor import Component, Descriptor, Limit, Source, Stack
from cluster.ray_node import NodeAddition
from cluster.service import Runtime, Service, Volume
from trainyard.access.variables import FOOD11_FOLDER

SERVICE = "dataset"
MOUNT = "/mnt"  # where course material expects it
VOLUME = Volume(name="food11", keep=True, shared=True, mount=MOUNT)
READ_ONLY = Volume(name="food11", keep=True, shared=True, read_only=True, mount=MOUNT)
FOLDER = "Food-11"  # within the volume; holds training, validation and evaluation
ARCHIVE_FILE = "archive"


class Dataset(Component):
    """The data set, which Ray nodes read."""

    def declare(self, stack: Stack) -> None:
        """Declare it."""
        runtime, given = stack.runtime, stack.settings.dataset
        source = ["--generate"] if given.generate else []
        if given.url:
            source = ["--url", given.url]
        elif given.archive:
            source = ["--archive", runtime.file(SERVICE, ARCHIVE_FILE)]
        if given.public:
            source.append("--public")
        runtime.place(
            Service(
                name=SERVICE,
                program="dataset",
                arguments=[
                    *("--folder", runtime.volume(SERVICE, VOLUME)),
                    *source,
                    *(["--sha256", given.sha256] if given.sha256 else []),
                ],
                host_files={ARCHIVE_FILE: given.archive} if given.archive else {},
                volumes=[VOLUME],
                once=True,
            ),
            self.child,
        )
        stack.additions.append(
            NodeAddition(
                environment=lambda runtime, service: {FOOD11_FOLDER: folder(runtime, service)},
                volumes=[READ_ONLY],
            )
        )


def folder(runtime: Runtime, service: str) -> str:
    """Return where a service that has the volume finds the data set."""
    return f"{runtime.volume(service, READ_ONLY)}/{FOLDER}"


DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Dataset, SERVICE),
    source=Source.CHECKOUT,
    limit=Limit(memory_mib=4096, processes=1024),
    wanted=lambda settings: settings.dataset is not None,
)
