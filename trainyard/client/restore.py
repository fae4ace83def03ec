"""The command `train restore`: brings a run from a copy, or pulled before, into a stack's store."""

# ruff: noqa: PLC0415 - a command imports what it needs, since most of it is slow

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import unquote, urlsplit

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import INTERRUPTED, Outputs, Stack, reach
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from trainyard.client.pull.meter import Meter

SCHEME = "s3://"
REGION = "us-east-1"
CONNECT_SECONDS, REQUEST_SECONDS = 5, 30
BLOCK_BYTES = 8 * 1024 * 1024
app = typer.Typer()


class Place(NamedTuple):
    """A folder of runs.

    Attributes:
        files: its file system.
        path: its path there.
        where: its name in messages.
    """

    files: FileSystem
    path: str
    where: str


@app.command()
def restore(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of a run.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="Folder of runs, such as results; or s3://bucket/prefix, with AWS_ENDPOINT_URL, "
            "AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.",
        ),
    ],
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Copy a run into a stack's store; a submit with its name resumes it there."""
    from trainyard.client import history, store

    history.valid_name(run)
    known = reach(context, contract.read(stack, outputs))
    store.check(store.open_store(known))  # has the best messages
    try:
        size = copy(run, _source(source), _target(known))
    except KeyboardInterrupt:
        say("\nstopped: the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    say(f"run {run}: {size / 1e6:.1f} MB restored; go on with `train submit JOB --name {run}`")


def copy(run: str, source: Place, target: Place) -> int:
    """Copy a run; a part of it is never taken for the whole.

    Returns:
        Its bytes.

    Raises:
        ClientError: the run is missing, the target has a run of this name, or one of them failed.
    """
    from trainyard import archive
    from trainyard.checkpoint_files import MANIFEST
    from trainyard.client.pull import marks
    from trainyard.client.pull.meter import Meter
    from trainyard.run_folder import STARTS

    found, there = (_sizes(place, run) for place in (source, target))
    wanted = {}
    for name, size in found.items():
        if fault := archive.fault_of_name(name):  # any writer of a bucket names its objects
            warn(f"warning: {name[:80]!a} {fault}: it is left out")
        elif name not in marks.ALL and not any(part.startswith(".") for part in name.split("/")):
            wanted[name] = size
    if not wanted:
        raise ClientError(f"no run is called {run!r} in {source.where}: name the folder above it")
    if there and (STARTS not in wanted or STARTS in there):
        raise ClientError(
            f"{target.where} has a run {run!r} already, which is kept: submit the job to go on "
            "with it, or restore into another stack"
        )

    def order(name: str) -> tuple[bool, bool, str]:
        return name == STARTS, name.rpartition("/")[2] == MANIFEST, name

    meter = Meter(f"restore {run}", sum(wanted.values()))
    try:
        for name in sorted(wanted, key=order):
            if there.get(name) == wanted[name]:
                meter.skip(wanted[name])
            else:
                _copy_file(f"{run}/{name}", source, target, meter)
    finally:
        meter.close()
    return meter.done


def _copy_file(name: str, source: Place, target: Place, meter: Meter) -> None:
    path = f"{target.path}/{name}"
    try:
        if target.files.type_name == "local":
            target.files.create_dir(path.rpartition("/")[0])
        with (
            source.files.open_input_stream(f"{source.path}/{name}") as file,
            target.files.open_output_stream(path) as copied,
        ):
            shutil.copyfileobj(_Metered(file, meter), copied, BLOCK_BYTES)
    except OSError as error:
        raise ClientError(
            f"cannot copy {name} from {source.where} to {target.where} ({error}): mend that, and "
            "run the same command again, which goes on"
        ) from None


class _Metered:
    def __init__(self, file: IO[bytes], meter: Meter) -> None:
        self._file, self._meter = file, meter

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._meter.add(len(block))
        return block


def _sizes(place: Place, run: str) -> dict[str, int]:
    """Return the bytes of a run's files, by their names below the run."""
    from pyarrow.fs import FileSelector, FileType

    folder = f"{place.path}/{run}"
    try:
        listed = place.files.get_file_info(
            FileSelector(folder, allow_not_found=True, recursive=True)
        )
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise ClientError(
            f"cannot list {place.where} ({error}): check the address, the keys and the network"
        ) from None
    return {
        each.path.removeprefix(f"{folder}/"): each.size
        for each in listed
        if each.type is FileType.File
    }


def _source(text: str) -> Place:
    if text.startswith(SCHEME):
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
        return _bucket(text, region=region, endpoint_override=os.environ.get("AWS_ENDPOINT_URL"))
    folder = Path(text).expanduser().absolute()
    if not folder.is_dir():
        raise ClientError(f"--from {text[:200]!r} is neither a folder nor s3://<bucket>[/<prefix>]")
    return _folder(folder)


def _target(known: contract.StackOutputs) -> Place:
    if not known.storage_url.startswith(SCHEME):
        return _folder(Path(unquote(urlsplit(known.storage_url).path)))
    return _bucket(
        known.storage_url,
        region=REGION,
        endpoint_override=known.object_store_endpoint,
        access_key=known.access_key,
        secret_key=known.secret_key,
    )


def _folder(path: Path) -> Place:
    from pyarrow.fs import LocalFileSystem

    return Place(LocalFileSystem(), str(path), str(path))


def _bucket(url: str, **access: str | None) -> Place:
    from pyarrow.fs import S3FileSystem

    parts = [part for part in url.removeprefix(SCHEME).split("/") if part]
    if not parts:
        raise ClientError(f"--from {url[:200]!r} names no bucket: give s3://<bucket>[/<prefix>]")
    try:
        files = S3FileSystem(
            **{name: text for name, text in access.items() if text},
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
    except (OSError, ValueError) as error:  # such as an endpoint that is not a URL
        raise ClientError(
            f"cannot use {url[:200]!r} ({error}): check AWS_ENDPOINT_URL and AWS_REGION"
        ) from None
    return Place(files, "/".join(parts), url)
