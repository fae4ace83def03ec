"""The command `train restore`: brings a run from a copy, or pulled before, into a stack's store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack, reach, until_interrupted
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

if TYPE_CHECKING:
    from trainyard.client.pull.meter import Meter
    from trainyard.store.objects import Store


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
    target = store.open_store(known)
    store.check(target)  # has the best messages
    with until_interrupted("\nstopped: the same command goes on"):
        size = copy(run, _source(source), target)
    say(f"run {run}: {size / 1e6:.1f} MB restored; go on with `train submit JOB --name {run}`")


def copy(run: str, source: Store, target: Store) -> int:
    """Copy a run; a part of it is never taken for the whole.

    Returns:
        Its bytes.

    Raises:
        ClientError: the run is missing, the target has a run of this name, or one of them failed.
    """
    from trainyard.client.pull import marks
    from trainyard.client.pull.meter import Meter
    from trainyard.resume.checkpoint_files import MANIFEST
    from trainyard.store import archive
    from trainyard.tracking.run_folder import STARTS, SUMMARIES

    found, there = (_sizes(store, run) for store in (source, target))
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

    target.delete(f"{SUMMARIES}/{run}")  # of a run that is gone
    meter = Meter(f"restore {run}", sum(wanted.values()))
    try:
        for name in sorted(wanted, key=order):
            if there.get(name) == wanted[name]:
                meter.skip(wanted[name])
            else:
                _copy_file(_Sent(source, f"{run}/{name}", wanted[name], meter), target)
    finally:
        meter.close()
    return meter.done


class _Sent:
    """A file of the source, read in parts while it is sent."""

    def __init__(self, source: Store, name: str, size: int, meter: Meter) -> None:
        self.name, self.where = name, source.where
        self._source, self._size, self._meter = source, size, meter
        self._at = 0

    def seek(self, first: int) -> None:
        self._at = first

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        count = left if size < 0 else min(size, left)
        part = self._source.part(self.name, self._at, count) if count else b""
        if len(part) != count:
            raise ClientError(f"it has lost {count - len(part)} bytes meanwhile")
        self._at += count
        self._meter.add(count)
        return part


def _copy_file(sent: _Sent, target: Store) -> None:
    try:
        target.upload(sent.name, sent)
    except (ClientError, OSError) as error:
        raise ClientError(
            f"cannot copy {sent.name} from {sent.where} to {target.where} ({error}): mend that, "
            "and run the same command again, which goes on"
        ) from None


def _sizes(store: Store, run: str) -> dict[str, int]:
    """Return the bytes of a run's files, by their names below the run."""
    try:
        return {name: each.size for name, each in store.listed(run).items()}
    except ClientError as error:
        raise ClientError(
            f"cannot list {store.where} ({error}): check the address, the keys and the network"
        ) from None


def _source(text: str) -> Store:
    from trainyard.client.store import StackFolder, environments_bucket
    from trainyard.store.objects import S3

    if text.startswith(S3):
        if not text.removeprefix(S3).strip("/"):
            raise ClientError(
                f"--from {text[:200]!r} names no bucket: give s3://<bucket>[/<prefix>]"
            )
        return environments_bucket(text)
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise ClientError(f"--from {text[:200]!r} is neither a folder nor s3://<bucket>[/<prefix>]")
    return StackFolder(folder)
