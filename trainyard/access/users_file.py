"""Files that a user wrote, or chose the place of: read in any form, and replaced in the same form.

A file may be a link, have a mode and an owner, begin with a byte order mark, and have the line ends
of Windows. All of that stays.
"""

import codecs
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# By its mark: without one a text is UTF-8.
ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def read(path: Path) -> str:
    """Return a text file's content; each line ends with a line feed.

    Raises:
        OSError: it is missing, cannot be read, or is not text; it names the file.
    """
    return decoded(path.read_bytes(), path)


def decoded(content: bytes, path: Path) -> str:
    """Return what `read` returns for the content of a file."""
    try:
        text = content.decode(_encoding(content)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise OSError(
            errno.EILSEQ, f"byte {error.start} is not {error.encoding}: save it as UTF-8", str(path)
        ) from None
    return text.replace("\r\n", "\n")


def replace(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Give a file a new content, at once and durably.

    Args:
        path: path of the file, or of a link to it.
        content: bytes, or a text that gets the form of the former one.
        mode: mode of a new file (default: by the umask).

    Raises:
        OSError: it cannot be written; the former file is untouched.
    """
    path = path.resolve()
    former = path.stat() if path.exists() else None
    if isinstance(content, str):
        content = _in_form(content, path.read_bytes() if former else b"")
    mode = former.st_mode & 0o7777 if former else mode
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if former:
                with suppress(PermissionError):  # only root can give a file away
                    os.fchown(descriptor, former.st_uid, former.st_gid)
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # some network file systems do not know it
        os.fsync(folder)
    os.close(folder)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time work on a folder's content; others wait."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _encoding(content: bytes) -> str:
    return next((name for mark, name in ENCODINGS.items() if content.startswith(mark)), "utf-8")


def _in_form(text: str, former: bytes) -> bytes:
    encoding = _encoding(former)
    if "\r\n" in former[: 1 << 16].decode(encoding, errors="replace"):
        text = text.replace("\n", "\r\n")
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    return (mark + text).encode(encoding)
