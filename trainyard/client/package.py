"""An upload: its files are measured, and packed as Ray's nodes unpack them.

Ray's own packaging follows links without an end, waits for FIFOs, and ignores a changed mode.
"""

import hashlib
import io
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trainyard.client.console import say
from trainyard.client.errors import ClientError
from trainyard.client.listing import Listing, of_module, read

MIB = 2**20
LIMIT = 100 * MIB  # of Ray's dashboard, for one package
LISTED = 10  # entries named when an upload is too large
ZIP_ENTRY_BYTES = 30 + 46  # local and central header of a stored entry, without its name
ZIP_END_BYTES = 22
MODULE_FILES = (".py", ".whl")


def pack(found: Listing, top: str = "") -> bytes:
    """Return a zip file of a listing: the same bytes for the same names, modes and content.

    All names get the folder `top`, which ends in `/`.

    Raises:
        ClientError: a file cannot be read.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for entry in found.files:
            item = zipfile.ZipInfo(top + entry.name)
            item.external_attr = (stat.S_IFREG | entry.mode) << 16
            archive.writestr(item, read(entry))
        for name in found.empty:
            archive.writestr(zipfile.ZipInfo(top + name), b"")
    return packed.getvalue()


class Packed(NamedTuple):
    """A runtime environment whose folders and files are packed."""

    env: dict[str, Any]  # the environment, with the packages' addresses
    packages: dict[str, bytes]  # their content by name, which holds a digest of it


def packages(runtime_env: dict[str, Any], secrets: Sequence[str] = ()) -> Packed:
    """Checks and packs the folders and files that a runtime environment names.

    Args:
        runtime_env: of a job; `excludes` are patterns of what is left out.
        secrets: values that no file may hold.

    Raises:
        ClientError: something cannot be read or unpacked, is too large, or holds a secret.
    """
    env, made = dict(runtime_env), {}

    def add(content: bytes, name: str = "_ray_pkg_{}.zip") -> str:
        name = name.format(hashlib.sha256(content).hexdigest()[:40])
        made[name] = content
        return f"gcs://{name}"

    excludes = env.pop("excludes", [])
    if (folder := env.get("working_dir")) and not is_remote(folder):
        if not Path(folder).is_dir():
            raise ClientError(f"{folder} is not a folder: give one whose content to upload")
        env["working_dir"] = add(pack(_checked(folder, excludes, secrets)))
    modules = env.get("py_modules", [])
    for i, module in enumerate(modules):
        path = Path(module)
        if is_remote(module):
            continue
        if not (path.is_dir() or path.suffix in MODULE_FILES):
            raise ClientError(
                f"{module} is not a folder: py_modules takes folders, .py files and wheels (.whl)"
            )
        found = _checked(module, excludes, secrets)
        if path.suffix == ".whl" and not path.is_dir():
            # Ray has pip install it, by this name, which has to be a wheel's.
            address = add(read(found.files[0]), _wheel(path))
        else:
            address = add(pack(found, f"{path.resolve().name}/" if path.is_dir() else ""))
        modules = [*modules[:i], address, *modules[i + 1 :]]
    return Packed(env | ({"py_modules": modules} if modules else {}), made)


def _checked(what: str, excludes: Sequence[str], secrets: Sequence[str]) -> Listing:
    found = of_module(Path(what), excludes)
    check_upload(what, found, secrets)
    return found


def _wheel(path: Path) -> str:
    """A pattern for a wheel's name, with the digest as its build tag."""
    parts = path.stem.split("-")
    if len(parts) not in (5, 6) or "{" in path.name:
        raise ClientError(
            f"{path.name} in py_modules is not named like a wheel "
            "(name-version-python-abi-platform.whl): give it the name that it was built with"
        )
    return "-".join([*parts[:2], "0_{}", *parts[-3:]]) + ".whl"


def check_upload(what: str, found: Listing, secrets: Sequence[str]) -> None:
    """Refuses an upload that is too large or that holds a secret; says what it leaves out.

    Raises:
        ClientError: with the ten largest entries, or the file that holds a secret of the stack.
    """
    files = found.files
    names = sum(2 * len(entry.name.encode()) for entry in files)
    size = sum(entry.size for entry in files) + names + len(files) * ZIP_ENTRY_BYTES + ZIP_END_BYTES
    if size > LIMIT:
        largest = sorted(files, key=lambda entry: -entry.size)[:LISTED]
        listing = "\n".join(f"  {entry.size / MIB:8.1f} MiB  {entry.name}" for entry in largest)
        raise ClientError(
            f"the upload of {what} has {size / MIB:.1f} MiB, at most {LIMIT / MIB:.0f} MiB are "
            f"taken; its largest entries:\n{listing}\nleave them out (.gitignore, .rayignore, or "
            "`excludes` of the runtime environment) and fetch large data on the node instead"
        )
    needles = [secret.encode() for secret in secrets]
    for entry in files:
        content = read(entry)
        if any(needle in content for needle in needles):
            raise ClientError(
                f"{entry.name} in the upload of {what} holds a secret of the stack: "
                "move it out of the folder, or name it in .rayignore"
            )
    if found.skipped:
        named = ", ".join(found.skipped[:LISTED])
        more = len(found.skipped) - LISTED
        say(f"not uploaded of {what}: {named}" + (f" and {more} more" if more > 0 else ""))


def is_remote(location: str) -> bool:
    """Whether a working_dir or module is an address that the cluster fetches."""
    return "://" in location and bool(urlsplit(location).scheme)
