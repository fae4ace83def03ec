"""Food-11 in a volume: a program fills it once, checks the result and ends.

Without an archive it draws a small stand-in: as many classes, which can be learned, but no food.
"""

from dataclasses import dataclass

import pulumi

from cluster.descriptor import Descriptor, Limit, Source, Stack
from cluster.ray_node import NodeAddition
from cluster.service import Runtime, Service, Volume
from trainyard.access.variables import FOOD11_FOLDER

SERVICE = "dataset"
MOUNT = "/mnt"  # where course material expects it
VOLUME = Volume(name="food11", keep=True, shared=True, mount=MOUNT)
READ_ONLY = Volume(name="food11", keep=True, shared=True, read_only=True, mount=MOUNT)
FOLDER = "Food-11"  # within the volume; holds training, validation and evaluation
ARCHIVE_FILE = "archive"


@dataclass(frozen=True, kw_only=True)
class DatasetArgs:
    """Arguments of the data set.

    Attributes:
        runtime: where the program runs.
        generate: whether a stand-in is drawn, in place of an archive.
        url: address of the archive; "" if it is a file, or without an archive.
        archive: absolute path of the archive on the host, "" without one or if it is a URL.
        sha256: hexadecimal digest that the archive must have, "" to take it as it is.
    """

    runtime: Runtime
    generate: bool
    url: str
    archive: str
    sha256: str

    def __post_init__(self) -> None:
        if [self.generate, bool(self.url), bool(self.archive)].count(True) != 1:
            raise ValueError(
                f"give one of URL ({self.url!r}), archive ({self.archive!r}) and generated images"
            )


class Dataset(pulumi.ComponentResource):
    """The data set.

    Attributes:
        folder: where services that have the volume find it.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:Dataset", name, None, opts)
        runtime = args.runtime
        source = ["--generate"]
        if args.url:
            source = ["--url", args.url]
        elif args.archive:
            source = ["--archive", runtime.file(SERVICE, ARCHIVE_FILE)]
        runtime.place(
            Service(
                name=SERVICE,
                program="dataset",
                arguments=[
                    *("--folder", runtime.volume(SERVICE, VOLUME)),
                    *source,
                    *(["--sha256", args.sha256] if args.sha256 else []),
                ],
                host_files={ARCHIVE_FILE: args.archive} if args.archive else {},
                volumes=[VOLUME],
                once=True,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.folder = pulumi.Output.from_input(folder(runtime, SERVICE))
        self.register_outputs({"folder": self.folder})


def folder(runtime: Runtime, service: str) -> str:
    """Return where a service that has the volume finds the data set."""
    return f"{runtime.volume(service, READ_ONLY)}/{FOLDER}"


def declare(stack: Stack) -> None:
    """Declare the data set of a stack, and let the Ray nodes read it."""
    source = stack.settings.dataset
    Dataset(
        "dataset",
        DatasetArgs(
            runtime=stack.runtime,
            generate=source.generate,
            url=source.url,
            archive=source.archive,
            sha256=source.sha256,
        ),
    )
    stack.additions.append(
        NodeAddition(
            environment=lambda runtime, service: {FOOD11_FOLDER: folder(runtime, service)},
            volumes=[READ_ONLY],
        )
    )


DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=declare,
    source=Source.CHECKOUT,
    limit=Limit(memory_mib=4096, processes=1024),
    wanted=lambda settings: settings.dataset is not None,
)
