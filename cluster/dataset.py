"""Food-11 in a volume of the stack or of the user: a program fills it once, checks it and ends.

With `generate` it draws a small stand-in: as many classes, which can be learned, but no food.
"""

from dataclasses import replace
from functools import partial

from cluster.descriptor import Component, Descriptor, Limit, Source, Stack
from cluster.ray_node import NodeAddition
from cluster.service import Service, Volume
from trainyard.access.variables import FOOD11_FOLDER

SERVICE = "dataset"
MOUNT = "/mnt"  # where course material expects it
VOLUME = Volume(name="food11", keep=True, shared=True, mount=MOUNT)
FOLDER = "Food-11"  # within the volume; holds training, validation and evaluation
ARCHIVE_FILE = "archive"


class Dataset(Component):
    """The data set, which Ray nodes read."""

    def declare(self, stack: Stack) -> None:
        runtime, given = stack.runtime, stack.settings.dataset
        volume = next((each for each in stack.volumes if each.name == given.volume), VOLUME)
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
                    *("--folder", runtime.volume(SERVICE, volume)),
                    *source,
                    *(["--sha256", given.sha256] if given.sha256 else []),
                ],
                host_files={ARCHIVE_FILE: given.archive} if given.archive else {},
                volumes=[replace(volume, read_only=False)],
                once=True,
            ),
            self.child,
        )
        stack.additions.append(
            NodeAddition(
                environment=lambda runtime, service: {
                    FOOD11_FOLDER: f"{runtime.volume(service, volume)}/{FOLDER}"
                },
                # Nodes mount all of the user's volumes anyway.
                volumes=[replace(VOLUME, read_only=True)] if volume is VOLUME else [],
            )
        )


DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Dataset, SERVICE),
    source=Source.CHECKOUT,
    limit=Limit(memory_mib=4096, processes=1024),
    wanted=lambda settings: settings.dataset is not None,
)
