"""Copies results to a second place while they are made: `python replicate.py SETTINGS`.

A pass copies new files, and a checkpoint's manifest after its files. Older checkpoints that the run
removed are removed there too, after a newer one has arrived whole. Files that may be of another
stack are neither removed nor overwritten. If a run is gone here, its copy stays: once a machine has
ended, nothing else is left of the run.

This module is a file of the service, wherever that runs, next to the store's modules
(cluster/replica.py); it needs only boto3.
"""

import itertools
import json
import re
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainyard.store import archive
from trainyard.store.objects import (
    MOST_BYTES,
    MOST_STATE_BYTES,
    S3,
    AwayError,
    BucketStore,
    Digest,
    FolderStore,
    Keys,
    Listed,
    Readable,
    RefusedError,
    StorageError,
    Store,
)

PAUSE_SECONDS = 5.0  # between two passes
# Names in the store, as training/ writes them.
CONFIG = "config.json"  # only runs of ours have one at the top
STARTS, METRICS, MANIFEST, CHECKPOINT = (
    "starts.jsonl",
    "metrics.jsonl",
    "manifest.json",
    "checkpoint_",
)
CHECKPOINT_NAME = re.compile(CHECKPOINT + r"([0-9]{1,200})(?:-[0-9a-z]{1,32})?")
MARK = "replicated.json"  # a run's copied results; `make down` reads it (client/pull/marks.py)
DRAFT = re.compile(r"\..*\.part")  # a file while it is written (trainyard/store/archive.py)
OWN = ".trainyard"  # folder of files that are not results
LEFT_OUT = (MARK, "pulled.json")
MANIFEST_BYTES = 16 * 1024 * 1024  # at most
FAULTS = (OSError, StorageError, AwayError)
OTHER = (
    "the replica has another run of this name, which is kept: give this one another name, or move "
    "that one away"
)


class Folder(FolderStore):
    """A folder of this machine. Its parent has to exist: it may be another disk."""

    def _replace(self, verb: str, name: str, source: Readable) -> Digest:
        if not self._path.parent.is_dir():
            raise NotADirectoryError(f"{self._path.parent} is not there: attach its disk")
        return super()._replace(verb, name, source)

    def _fault(self, _verb: str, _path: Path, error: OSError) -> Exception:
        return error


class Bucket(BucketStore):
    """A bucket that is asked once: the next pass tries again."""

    waits = False
    advice = "check keys, bucket, endpoint and region, or look at that service's log"


class Parts:
    """A file of a store that is read in parts, up to the size that it was listed with.

    If it is written anew meanwhile, the copy is mixed until the next pass, which sees the change.
    """

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store, self._name, self._size = store, name, size
        self._at = 0

    def seek(self, first: int) -> None:
        """Goes back to a byte."""
        self._at = first

    def read(self, size: int = -1) -> bytes:
        """Reads on, at most so many bytes; b"" at the end."""
        left = self._size - self._at
        size = left if size < 0 else min(size, left)
        content = self._store.part(self._name, self._at, size) if size else b""
        self._at += len(content)
        return content


def location(settings: dict[str, str], *, elsewhere: bool = False) -> Store:
    """Return a store from its URL and, for a bucket, its endpoint, region and keys.

    `elsewhere` says that the store does not belong to the stack.
    """
    url = settings["url"]
    if not url.startswith(S3):
        return Folder(Path(url.removeprefix("file://")))
    return Bucket(
        url.removeprefix(S3),
        endpoint=settings["endpoint"],
        region=settings["region"],
        keys=Keys(settings["access"], settings["secret"]),
        elsewhere=elsewhere,
    )


class Replica:
    """Copies results from one place to another."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target
        self._copied: dict[str, Listed] = {}  # of files that change, as they were when copied
        self._whole: dict[str, tuple[Listed, dict[str, int]]] = {}  # files by checkpoint
        self._epochs: dict[str, int] = {}
        self._marks: dict[str, bytes] = {}
        self._proof = f"{OWN}/replica-{uuid.uuid4().hex}"

    def prove(self) -> None:
        """Write to the target, and look whether that is the source.

        Raises:
            SystemExit: it is the source.
        """
        name = self._proof
        self._target.write(name, b"")
        try:
            own = any(each.endswith(name) for each in self._source.listed())
        finally:
            self._target.delete(name)
        if own:
            sys.exit("replicate.to is where the results are already: name another place")

    def copy(self) -> list[str]:
        """Copy all new files; return the runs that failed, and why."""
        here, there = _by_run(self._source.listed()), _by_run(self._target.listed())
        faults: list[str] = []
        for run in sorted(here.keys() - {OWN}):
            try:
                self._copy_run(run, here[run], there.get(run, {}))
            except FileNotFoundError:  # the run removed it meanwhile: the next pass sees the rest
                continue
            except AwayError as error:  # for the other runs too: each would wait for it
                return [*faults, f"{run}: {error}"]
            except FAULTS as error:
                faults.append(f"{run}: {error}")
        return faults

    def _copy_run(self, run: str, here: dict[str, Listed], there: dict[str, Listed]) -> None:
        here = {name: stamp for name, stamp in here.items() if _base(name) not in LEFT_OUT}
        starts = f"{run}/{STARTS}"
        # A folder's first start tells which run it is of.
        strange = any(_checkpoint(name) for name in there.keys() - self._copied.keys())
        if starts in there.keys() - here.keys() or (
            starts in here.keys() - there.keys() and strange
        ):
            raise FileExistsError(OTHER)
        whole = {
            folder for name in here if (folder := described(name)) and self._is_whole(name, here)
        }
        for name in sorted(here, key=_order):
            # Files that a manifest names never change. Tags of two places cannot be compared.
            fixed = _checkpoint(name) in whole
            known = here[name].size if fixed else here[name]
            there_is = there[name].size if fixed and name in there else self._copied.get(name)
            if name not in there or known != there_is:
                self._copy_file(run, name, here[name].size)
                self._copied[name] = there[name] = here[name]
        own = set(there) if starts in here else self._copied.keys() & set(there)
        self._prune({folder for name in here if (folder := _checkpoint(name))}, whole, there, own)
        if f"{run}/{CONFIG}" in here:
            self._mark(run, newest(run, whole), inner(here)[run])

    def _is_whole(self, name: str, here: dict[str, Listed]) -> bool:
        """See `is_whole`; a manifest is read again only after it has changed."""
        stamp, folder = here[name], _checkpoint(name)
        if folder not in self._whole or self._whole[folder][0] != stamp:
            small = stamp.size <= MANIFEST_BYTES
            content = self._source.read(name, MANIFEST_BYTES) if small else b""
            self._whole[folder] = stamp, named(content)
        return is_whole(folder, self._whole[folder][1], here)

    def _prune(
        self, present: set[str], whole: set[str], there: dict[str, Listed], own: set[str]
    ) -> None:
        """Remove older checkpoints that the run removed; all `present` ones have arrived.

        The `whole` ones can be restored; of the files there, its `own` are certainly of this run.
        """
        stored = {folder for name in there if (folder := _checkpoint(name))}
        others = {_checkpoint(name) for name in there.keys() - own}
        for gone in sorted(stored - present - others):
            # Others' checkpoints have no manifests.
            known = whole if f"{gone}/{MANIFEST}" in there else present
            beside = [each for each in known if _parent(each) == _parent(gone)]
            if any(_age(gone) < _age(each) for each in beside):
                names = [name for name in there if name.startswith(f"{gone}/")]
                # Without its manifest it does not count as a checkpoint.
                for name in sorted(names, key=lambda name: _base(name) != MANIFEST):
                    self._target.delete(name)
                    del there[name]

    def _copy_file(self, run: str, name: str, size: int) -> None:
        if name not in (f"{run}/{STARTS}", f"{run}/{METRICS}") and size > MOST_BYTES:
            self._target.upload(name, Parts(self._source, name, size))
            return
        content = self._source.read(name, MOST_STATE_BYTES)
        if name == f"{run}/{STARTS}":
            self._refuse_other(name, content)
        self._target.write(name, content)
        if name == f"{run}/{METRICS}":
            self._epochs[run] = records(content)

    def _refuse_other(self, name: str, content: bytes) -> None:
        """Keep the files of another run of this name there.

        Raises:
            FileExistsError: the run there began differently.
        """
        there = self._target.get(name, MOST_STATE_BYTES)
        if there is not None and content.partition(b"\n")[0] != there.partition(b"\n")[0]:
            raise FileExistsError(OTHER)

    def _mark(self, run: str, checkpoint: str, files: int) -> None:
        found = {"checkpoint": checkpoint, "epochs": self._epochs.get(run, 0), "files": files}
        mark = json.dumps(found).encode()
        if self._marks.get(run) != mark:
            self._source.write(f"{run}/{MARK}", mark)
            self._marks[run] = mark


def inner(names: Iterable[str]) -> Counter[str]:
    """Count the files in each run's folders except checkpoints, as client/pull/marks.py does."""
    return Counter(
        run
        for run, *parts in (name.split("/") for name in names)
        if len(parts) > 1 and not any(part.startswith((".", CHECKPOINT)) for part in parts)
    )


def _by_run(listed: dict[str, Listed]) -> dict[str, dict[str, Listed]]:
    """Return files by the first part of their names, if they can be files of a folder."""
    found: dict[str, dict[str, Listed]] = {}
    for name, stamp in listed.items():
        parents = itertools.accumulate(name.split("/")[:-1], "{}/{}".format)
        if (
            _is_file_name(name)
            and not DRAFT.fullmatch(_base(name))
            and not any(parent in listed for parent in parents)
        ):
            found.setdefault(name.split("/")[0], {})[name] = stamp
    return found


def _is_file_name(name: str) -> bool:
    """Tell whether a name stays inside its folder: anyone who writes to a bucket names objects."""
    parts = name.encode(errors="surrogateescape").split(b"/")
    return (
        not {b"", b".", b".."} & set(parts)
        and "\0" not in name
        and sum(map(len, parts)) + len(parts) <= archive.LONGEST_NAME
        and max(map(len, parts)) <= archive.LONGEST_PART
    )


def named(content: bytes) -> dict[str, int]:
    """Return the sizes of the files that a manifest names; none where it cannot be read."""
    try:
        files = json.loads(content)["files"]
        return {str(name): int(digest["size"]) for name, digest in files.items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}


def is_whole(folder: str, files: Mapping[str, int], listed: Mapping[str, Listed]) -> bool:
    """Tell whether a checkpoint's manifest names files, and all exist in their sizes."""
    return bool(files) and all(
        f"{folder}/{file}" in listed and listed[f"{folder}/{file}"].size == size
        for file, size in files.items()
    )


def newest(run: str, whole: Iterable[str]) -> str:
    """Return the newest of some checkpoints that is the run's own, not a trial's; "" for none."""
    own = (folder for folder in whole if _parent(folder) == run)
    return _base(max(own, key=_age, default=""))


def described(name: str) -> str:
    """Return the folder of the checkpoint whose manifest it is, "" for none."""
    folder = _checkpoint(name) if _base(name) == MANIFEST else ""
    return folder if folder == _parent(name) else ""


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _checkpoint(name: str) -> str:
    """Return the folder of the checkpoint that has a file, "" for none."""
    parts = name.split("/")
    for index, part in enumerate(parts[:-1]):
        if CHECKPOINT_NAME.fullmatch(part):
            return "/".join(parts[: index + 1])
    return ""


def _age(folder: str) -> tuple[int, str]:
    """Return a key that sorts checkpoints, the oldest first."""
    found = CHECKPOINT_NAME.fullmatch(_base(folder))
    return (int(found[1]) if found else -1, folder)


def _order(name: str) -> tuple[int, str, bool, str]:
    """Starts first, which tell two runs of one name apart; then checkpoints, manifests last."""
    folder = _checkpoint(name)
    rank = 0 if _base(name) == STARTS else 1 if folder else 2
    return rank, folder, _base(name) == MANIFEST, name


def records(content: bytes) -> int:
    """Count the lines before the first that is not a record (trainyard/tracking/run_folder.py)."""
    return sum(1 for _ in itertools.takewhile(_is_record, content.splitlines()))


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def main(settings: dict[str, Any]) -> None:
    """Copy until SIGTERM, and once more then.

    Settings are `source` and `target` as `location` takes them, `listen` and `port` for health.
    """
    ready, ending = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    _serve((settings["listen"], int(settings["port"])), ready)
    target = location(settings["target"], elsewhere=True)
    replica = Replica(location(settings["source"]), target)
    said: list[str] = []
    while True:
        last = ending.is_set()
        try:
            if not ready.is_set():
                replica.prove()
                ready.set()
            faults = replica.copy()
        except FAULTS as error:
            if not ready.is_set():
                _refuse(error, settings["target"]["url"])
            faults = [str(error)]
        if faults != said:
            for each in faults or ["all results are copied again"]:
                print(each, flush=True)  # noqa: T201 - the service's log
        said = faults
        if last:
            return
        ending.wait(PAUSE_SECONDS)


def _refuse(error: Exception, url: str) -> None:
    """End if another attempt cannot help."""
    if isinstance(error, RefusedError):
        sys.exit(f"replicate.to = {url!r}: {error}")


def _serve(address: tuple[str, int], ready: threading.Event) -> None:
    """Answer /health, with 200 from the first write to the target on."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.OK if ready.is_set() else HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: only the supervisor asks."""

    server = ThreadingHTTPServer(address, Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
