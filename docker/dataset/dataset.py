#!/usr/bin/env python3
"""Fills a volume with Food-11, and ends.

The volume gets Food-11/{training,validation,evaluation}/class_00 … class_10. The source is a zip or
tar, from a URL or a file, with the three splits anywhere in it; their images are in class folders,
or all together under the names <class>_<number>.jpg. --public is Food-11 itself, which has a known
number of images in each class. --generate draws a stand-in, which the manifest tells apart.

Food-11 appears whole or not at all: it is made next to its place, checked, and renamed. The next
run knows it by its manifest, and removes the leftovers of a killed run, except a download, which
it continues. Only the split, the class and the bare name of an image decide where a file goes.
"""

import argparse
import bz2
import contextlib
import fcntl
import gzip
import hashlib
import http.client
import io
import itertools
import json
import lzma
import os
import re
import shutil
import signal
import stat
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

NAME = "Food-11"
SPLITS = ("training", "validation", "evaluation")
CLASSES = 11
MANIFEST = ".manifest.json"  # hidden: a listing of Food-11 shows the splits
STAGING = ".filling"
DOWNLOAD = ".download-"  # begins the name of an archive that has not come whole
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
CLASS_FOLDER = re.compile(r"class_(\d{1,2})")
FLAT_NAME = re.compile(r"(\d{1,2})_.+")
GENERATED = "generated: "  # begins the source of generated.py's manifest

# Where the course's own set-up has it from. Nobody publishes a digest of this archive, so the
# numbers of images by class tell whether it is Food-11: two tables of its users have the same 33.
ADDRESS = "https://nyu.box.com/shared/static/m5kvcl25hfpljul3elhu6xz8y2w61op4.zip"
COUNTS = {
    "training": (994, 429, 1500, 986, 848, 1325, 440, 280, 855, 1500, 709),
    "validation": (362, 144, 500, 327, 326, 449, 147, 96, 347, 500, 232),
    "evaluation": (368, 148, 500, 335, 287, 432, 147, 96, 303, 500, 231),
}

# Food-11 is 16,643 images in 1.2 GB. A far larger archive is another one, or an attack.
MAX_BYTES = 32 * 1024**3
MAX_MEMBERS = 100_000  # files and folders
MAX_HEADER = 8192  # bytes of an entry of a tar that holds names only
MAX_IMAGE_BYTES = 64 * 1024**2
CHUNK = 1024**2  # bytes
ENCRYPTED = 1  # a flag of a file in a zip
DAMAGE = (
    *(zipfile.BadZipFile, NotImplementedError, tarfile.TarError),
    *(zlib.error, lzma.LZMAError, EOFError, UnicodeDecodeError),
)
COMPRESSED: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
NAMES = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)  # entries with the name of the next one
PAX_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]{1,99})=")
MIB = 1024**2  # bytes

TIMEOUT_SECONDS = 60  # without a byte from the server
ATTEMPTS = 3  # without a new byte
RETRY_SECONDS = 2.0
PROGRESS_SECONDS = 5.0


class DatasetError(Exception):
    """The volume could not be filled; the message says what to do."""


@dataclass(frozen=True)
class Manifest:
    """The content of a filled volume.

    Attributes:
        source: URL or file name of the archive, or how the images were generated.
        sha256: of the archive, or of how they were generated.
        images: number of images in each class folder, by "split/class".
        digest: sha256 of all paths and sizes.
    """

    source: str
    sha256: str
    images: dict[str, int]
    digest: str


@dataclass(frozen=True)
class Member:
    """A file or folder in an archive; a file has to be opened before the next one is asked for."""

    name: str
    size: int
    open: Callable[[], IO[bytes]] | None


class Progress:
    """Prints the progress every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        """Print a text, unless one was printed just now."""
        if time.monotonic() - self._last >= PROGRESS_SECONDS:
            self._last = time.monotonic()
            _say(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the volume as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="dataset", description="Fills a volume with Food-11.")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", type=_url, help="http or https address of a zip or tar")
    source.add_argument("--archive", type=Path, help="a zip or tar")
    source.add_argument("--generate", action="store_true", help="draw a small stand-in for Food-11")
    parser.add_argument(
        "--public", action="store_true", help=f"Food-11 itself, without --url from {ADDRESS}"
    )
    parser.add_argument("--sha256", type=_sha256, help="sha256 that the archive must have")
    parser.add_argument("--folder", type=Path, default="/mnt", help="the volume (default: /mnt)")
    options = parser.parse_args(arguments)
    if not (options.url or options.archive or options.generate or options.public):
        parser.error("one of the arguments --url --archive --generate --public is required")
    for name in ("sha256", "public"):
        if options.generate and getattr(options, name):
            parser.error(f"argument --{name}: not allowed with argument --generate")
    if options.public and not options.archive:
        options.url = options.url or ADDRESS
    # Without a handler, which Python lacks, it does not end the first process of a container.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        _fill(options.folder, options.url or options.archive, options.sha256, public=options.public)
    except DatasetError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _fill(folder: Path, source: str | Path | None, sha256: str | None, *, public: bool) -> None:
    """Fill the volume from a URL or a file, or from nothing with generated images."""
    with _sole_user(folder):
        if _is_filled(folder, sha256, generated=source is None, public=public):
            return
        staging = folder / STAGING
        try:
            _make_empty(staging)
            if source is None:
                manifest = _generate(staging)
            else:
                manifest = _prepare(staging, source, sha256, public=public)
            os.sync()  # otherwise a power cut may leave the new name without its files
            (staging / NAME).rename(folder / NAME)
            for download in folder.glob(f"{DOWNLOAD}*"):
                download.unlink()
        except OSError as error:
            raise DatasetError(
                f"{error.filename or folder}: {error.strerror} (the volume has to be writable for "
                f"user {os.getuid()}, with room for the archive and its images)"
            ) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    _say_counts(manifest, folder)


@contextlib.contextmanager
def _sole_user(folder: Path) -> Iterator[None]:
    """Let nobody else fill the volume meanwhile; the lock is the folder, so it leaves no file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)  # a stack's own, in a volume that stacks share
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DatasetError(
            f"{error.filename}: {error.strerror}: mount a volume that user {os.getuid()} can write"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DatasetError(f"{folder} is being filled by another process: wait for it") from None
    finally:
        os.close(descriptor)


def _is_filled(folder: Path, sha256: str | None, *, generated: bool, public: bool) -> bool:
    """Return whether the volume holds Food-11 already.

    Raises:
        DatasetError: it holds anything else, or a Food-11 that is not the one it was filled with,
            or generated images where Food-11 was asked for, and the other way round.
    """
    found = {path.name for path in folder.iterdir() if not path.name.startswith(DOWNLOAD)}
    found -= {STAGING, "lost+found"}
    if not found:
        return False
    manifest = _read_manifest(folder / NAME / MANIFEST)
    if found != {NAME} or manifest is None:
        raise DatasetError(
            f"{folder} holds data of another origin ({', '.join(sorted(found)[:5])}): "
            "name another volume, or empty this one"
        )
    if _survey(folder / NAME) != (manifest.images, manifest.digest):
        raise DatasetError(
            f"{folder / NAME} was changed since it was filled from {manifest.source}: "
            "remove it from the volume to have it filled again"
        )
    if manifest.source.startswith(GENERATED) != generated:
        wanted = "generated images were" if generated else "an archive of Food-11 was"
        raise DatasetError(
            f"{folder / NAME} was filled from {manifest.source}, and {wanted} asked for: remove it "
            "to have it filled again, or name another volume"
        )
    if sha256 not in {None, manifest.sha256}:
        raise DatasetError(
            f"{folder / NAME} was filled from an archive with sha256 {manifest.sha256}, not "
            f"{sha256}: name another volume, or empty this one"
        )
    if public and (fault := _not_public(manifest.images)):
        raise DatasetError(
            f"{folder / NAME} was filled from {manifest.source}, and {fault}: name another volume, "
            "or empty this one"
        )
    _say(f"filled already, from {manifest.source}")
    _say_counts(manifest, folder)
    return True


def _read_manifest(path: Path) -> Manifest | None:
    try:
        return Manifest(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _make_empty(staging: Path) -> None:
    if staging.exists():
        _say("removing the leftovers of an interrupted run")
        shutil.rmtree(staging)
    staging.mkdir()


def _not_public(images: Mapping[str, int]) -> str | None:
    """Return how images by "split/class" differ from Food-11's own, None if they do not."""
    for split, counts in COUNTS.items():
        for number, count in enumerate(counts):
            name = f"{split}/class_{number:02d}"
            if (has := images.get(name, 0)) != count:
                return f"{name} has {has} images, where Food-11 has {count}"
    return None


def _prepare(staging: Path, source: str | Path, sha256: str | None, *, public: bool) -> Manifest:
    """Make and check Food-11 in the staging folder."""
    if isinstance(source, Path):
        return _sorted(staging, source, source.name, sha256, public=public)
    shown = source.partition("?")[0]  # a query may hold a key
    name = f"{DOWNLOAD}{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    archive = staging.with_name(name)
    for other in staging.parent.glob(f"{DOWNLOAD}*"):
        if other != archive:
            other.unlink()
    _download(source, shown, archive)
    try:
        return _sorted(staging, archive, shown, sha256, public=public)
    except DatasetError:
        archive.unlink()  # the next run would find the same fault
        raise


def _sorted(
    staging: Path, archive: Path, shown: str, sha256: str | None, *, public: bool
) -> Manifest:
    """Check an archive, and sort its images in the staging folder."""
    digest = _digest_of(archive)
    if sha256 not in {None, digest}:
        raise DatasetError(
            f"{shown} has sha256 {digest}, not {sha256}: it is another file, or a damaged one"
        )
    _say(f"{shown} has sha256 {digest}")
    _unpack(archive, shown, staging / NAME)
    images, listing = _survey(staging / NAME)
    missing = [
        f"{split}/class_{number:02d}"
        for split in SPLITS
        for number in range(CLASSES)
        if f"{split}/class_{number:02d}" not in images
    ]
    if missing:
        raise DatasetError(
            f"{shown} has no images of {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}: Food-11 has "
            f"{CLASSES} classes in each of {', '.join(SPLITS)}"
        )
    if public and (fault := _not_public(images)):
        raise DatasetError(
            f"{shown}: {fault}: name another copy of Food-11 as url or archive, or leave public out"
        )
    manifest = Manifest(shown, digest, images, listing)
    (staging / NAME / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
    return manifest


def _generate(staging: Path) -> Manifest:
    try:
        import generated  # noqa: PLC0415 (needs packages that nothing else here does)
    except ImportError as error:
        raise DatasetError(f"{error}: to generate images install numpy and pillow") from None
    _say("drawing generated images, not food")
    generated.generate(staging / NAME)
    return Manifest(**json.loads((staging / NAME / MANIFEST).read_text()))


def _digest_of(archive: Path) -> str:
    try:
        with archive.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(
            f"{archive}: {error.strerror}: mount an archive there that user {os.getuid()} may read"
        ) from None


def _download(url: str, shown: str, archive: Path) -> None:
    """Download to a file, from where an earlier attempt or run ended."""
    attempt = 1
    while True:
        before = archive.stat().st_size if archive.exists() else 0
        try:
            return _download_rest(url, shown, archive, before)
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
            # A range that the server lacks: the file is gone, and the next attempt has none.
            if error.code < 500 and error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            problem = str(getattr(error, "reason", error) or type(error).__name__)
        except ConnectionError as error:
            problem = error.strerror or type(error).__name__
        grew = archive.exists() and archive.stat().st_size > before
        attempt = 1 if grew else attempt + 1
        if attempt > ATTEMPTS:
            break
        _say(f"{shown}: {problem}; trying again")
        time.sleep(RETRY_SECONDS * attempt)
    raise DatasetError(
        f"{shown}: {problem}: check the address, or give a local archive instead; the next run "
        "continues the download"
    )


def _download_rest(url: str, shown: str, archive: Path, before: int) -> None:
    """Append what a file lacks; a server that cannot continue sends all of it."""
    progress = Progress()
    request = urllib.request.Request(url)  # noqa: S310 - _url checks
    if before:
        request.add_header("Range", f"bytes={before}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and before:
            # The file is whole already, or longer than the server's.
            if error.headers.get("Content-Range") == f"bytes */{before}":
                return
            archive.unlink()
        raise
    with answer:
        start = f"bytes {before}-"
        continued = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        if continued and not (answer.headers.get("Content-Range") or "").startswith(start):
            raise http.client.HTTPException("the server continues at another place")
        done = before if continued else 0
        _say(f"downloading {shown}" + (f", from {done // MIB} MiB on" if done else ""))
        length = answer.headers.get("Content-Length") or ""
        size = done + int(length) if re.fullmatch("[0-9]{1,18}", length) else 0
        with archive.open("ab" if continued else "wb") as file:
            while chunk := answer.read(CHUNK):
                done += len(chunk)
                if max(done, size) > MAX_BYTES:
                    archive.unlink()
                    raise DatasetError(
                        f"{shown} is larger than {MAX_BYTES // MIB} MiB: Food-11 is not"
                    )
                file.write(chunk)
                progress(f"downloaded {done // MIB} of {size // MIB or '?'} MiB")
    if size and done < size:
        raise http.client.IncompleteRead(b"", size - done)
    _say(f"downloaded {done // MIB} MiB")


def _unpack(archive: Path, shown: str, target: Path) -> None:
    """Sort the images of an archive into class folders."""
    progress = Progress()
    images = other = total = 0
    try:
        for count, member in enumerate(_members(archive), start=1):
            total += member.size
            if total > MAX_BYTES or count > MAX_MEMBERS:
                raise DatasetError(
                    f"it holds more than {MAX_BYTES // MIB} MiB or {MAX_MEMBERS} files: "
                    "Food-11 does not"
                )
            if member.open is None:
                continue
            place = _place(member.name)
            if place is None:
                other += 1
                continue
            _write_image(member.open, member.name, target / place)
            images += 1
            progress(f"unpacked {images} images")
    except DatasetError as error:
        raise DatasetError(f"{shown}: {error}") from None
    except DAMAGE as error:
        raise DatasetError(f"{shown} is damaged ({error}): get it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        # Not the system's: gzip and bzip2 have no error of their own for damaged data.
        raise DatasetError(f"{shown} is damaged ({error}): get it again") from None
    _say(f"unpacked {images} images; left out {other} other files")


def _members(archive: Path) -> Iterator[Member]:
    """Return the files and folders of an archive, without unpacking any."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as package:
            for info in package.infolist():
                if info.is_dir():
                    yield Member(info.filename, 0, None)
                    continue
                if info.flag_bits & ENCRYPTED:
                    raise DatasetError("it is encrypted: take one that is not")
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise DatasetError(f"{info.filename!r} is a link: only files are taken")
                yield Member(info.filename, info.file_size, partial(package.open, info))
        return
    with _stream(archive) as stream:
        yield from _tar_members(stream)


def _stream(archive: Path) -> IO[bytes]:
    """Open an archive that may be compressed."""
    with archive.open("rb") as file:
        start = file.read(max(map(len, COMPRESSED)))
    for magic, opened in COMPRESSED.items():
        if start.startswith(magic):
            return cast("IO[bytes]", opened(archive))
    return archive.open("rb")


def _tar_members(stream: IO[bytes]) -> Iterator[Member]:
    """Read headers as trainyard/store/archive.py does: Python's own reader has no bounds."""
    extended, name, left = False, "", 0
    for count in itertools.count():
        block = stream.read(tarfile.BLOCKSIZE)
        if len(block) == tarfile.BLOCKSIZE and not any(block):
            stream.read(CHUNK)  # padding of the last record: a compressed one is checked at its end
            return
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if count:
                raise tarfile.ReadError(str(error) or "it is cut off") from None
            raise DatasetError(
                "it is neither a zip nor a tar: check the address or the file"
            ) from None
        padded = -(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        if entry.type in NAMES and not extended and 0 <= entry.size <= MAX_HEADER:
            extended = True
            content = _exactly(stream, padded)[: entry.size]
            name = _pax_name(content) if entry.type == tarfile.XHDTYPE else _text(content)
            continue
        if entry.type == tarfile.XGLTYPE and not count and 0 <= entry.size <= MAX_HEADER:
            _exactly(stream, padded)  # for all entries; git's archives begin with one
            continue
        shown, extended, name = name or entry.name, False, ""
        if entry.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
            raise DatasetError(f"{shown[:80]!r} is a link or device: only files are taken")
        if entry.size < 0 or (entry.isdir() and entry.size):
            raise tarfile.ReadError(f"{shown[:80]!r} cannot have {entry.size} bytes")
        left = padded

        def opened(size: int = entry.size) -> IO[bytes]:
            nonlocal left
            content = _exactly(stream, min(size, MAX_IMAGE_BYTES + 1))
            left -= len(content)
            return io.BytesIO(content)

        yield Member(shown, entry.size, None if entry.isdir() else opened)
        while left:
            left -= len(_exactly(stream, min(left, CHUNK)))


def _pax_name(content: bytes) -> str:
    """Return the name in an extended header, "" for none."""
    name = ""
    while content:
        record = PAX_RECORD.match(content)
        length = int(record[1]) if record else 0
        if not record or length <= record.end() or content[length - 1 : length] != b"\n":
            raise tarfile.ReadError("an extended header cannot be read")
        if record[2] == b"path":
            name = _text(content[record.end() : length - 1])
        elif record[2] == b"size" or record[2].startswith(b"GNU.sparse"):
            raise tarfile.ReadError(f"an extended header has {record[2].decode()!r}")
        content = content[length:]
    return name


def _text(content: bytes) -> str:
    return content.removesuffix(b"\0").decode(errors="surrogateescape")


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) != size:
        raise tarfile.ReadError("it is cut off")
    return content


def _place(name: str) -> Path | None:
    """Return an image's path in Food-11; None for files that are not images of a split."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise DatasetError(f"{name!r} leads out of the archive's folder: it was made to do harm")
    *folders, file = path.parts
    if "__MACOSX" in folders or path.suffix.lower() not in IMAGE_SUFFIXES or file.startswith("."):
        return None
    splits = [index for index, folder in enumerate(folders) if folder in SPLITS]
    if not splits:
        return None
    below = folders[splits[-1] + 1 :]
    if not below:
        match = FLAT_NAME.fullmatch(file)
    else:
        match = CLASS_FOLDER.fullmatch(below[0]) if len(below) == 1 else None
    if match is None or int(match[1]) >= CLASSES:
        raise DatasetError(
            f"{name!r} names no class: it is neither <split>/class_NN/<image> nor "
            f"<split>/<class>_<number>.jpg with a class below {CLASSES}"
        )
    return Path(folders[splits[-1]], f"class_{int(match[1]):02d}", file)


def _write_image(opened: Callable[[], IO[bytes]], name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened() as source:
        # The bytes that it holds fill the disk, not the size that it declares.
        content = source.read(MAX_IMAGE_BYTES + 1)
    if len(content) > MAX_IMAGE_BYTES:
        raise DatasetError(f"{name!r} is larger than {MAX_IMAGE_BYTES // MIB} MiB")
    if not content.startswith(IMAGE_STARTS):
        raise DatasetError(f"{name!r} is not a JPEG or PNG image: get the archive again")
    try:
        with target.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise DatasetError(f"{name!r}: the archive has this image twice") from None


def _survey(folder: Path) -> tuple[dict[str, int], str]:
    """Return the number of images in each class folder, and a digest of all paths and sizes."""
    images: Counter[str] = Counter()
    lines = []
    for root, _, files in os.walk(folder):
        for name in files:
            path = Path(root, name)
            relative = path.relative_to(folder)
            if relative != Path(MANIFEST):
                images[relative.parent.as_posix()] += 1
                lines.append(f"{relative.as_posix()} {path.stat().st_size}\n")
    digest = hashlib.sha256("".join(sorted(lines)).encode(errors="surrogateescape"))
    return dict(sorted(images.items())), digest.hexdigest()


def _say_counts(manifest: Manifest, folder: Path) -> None:
    for split in SPLITS:
        counts = [manifest.images[f"{split}/class_{number:02d}"] for number in range(CLASSES)]
        shown = " ".join(f"{number:02d}:{count}" for number, count in enumerate(counts))
        _say(f"{split}: {sum(counts)} images in {CLASSES} classes ({shown})")
    _say(f"{folder / NAME} is ready")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not an http or https address")
    if parts.username or parts.password:
        raise argparse.ArgumentTypeError("the address holds a password, which everybody would see")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 64 hexadecimal digits")
    return text.lower()


if __name__ == "__main__":
    sys.exit(main())
