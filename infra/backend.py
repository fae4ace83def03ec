"""Which state backend the stacks are in, and its id: whose things in an account are told by it.

Two backends may be used by one person with one account. What bears another backend's id is in a
state that cannot be looked at from here.
"""

import fcntl
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulumi
import yaml

from access import state_folder
from access.state_bucket import BucketUrlError
from access.state_folder import ORGANIZATION

ID_BYTES = 4
ID_FILE = "trainyard.json"  # beside meta.yaml


class BackendError(pulumi.RunError):
    """It is not known which backend this is; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where states are.

    Attributes:
        url: as PULUMI_BACKEND_URL has it.
        folder: absolute folder of the states, None where they are in no folder.
    """

    url: str
    folder: Path | None

    def id(self, organization: str = ORGANIZATION) -> str:
        """Return 8 hexadecimal characters that no other backend has, "" if none were drawn yet.

        A folder has the id that was drawn for it. One that was copied, or moved to another disk,
        has none until the next is drawn: copy and original are two backends from then on.

        Args:
            organization: of the stacks, where states are in no folder.

        Raises:
            BackendError: the id cannot be read.
        """
        if self.folder is None:
            place = urlsplit(self.url)
            host = place.netloc.rpartition("@")[2]
            # What follows a ? is how it is reached, which may be another way for each of us.
            text = f"{place.scheme}://{host}{place.path.rstrip('/')}#{organization}"
            return hashlib.sha256(text.encode()).hexdigest()[: 2 * ID_BYTES]
        path = self.folder / ID_FILE
        try:
            note = json.loads(path.read_text())
            return str(note["id"]) if note["inode"] == self.folder.stat().st_ino else ""
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BackendError(
                f"{path} cannot be read ({error}); restore it, or remove it for a new id: what "
                "bears the old one is then no longer known as this backend's"
            ) from None

    def draw_id(self, organization: str = ORGANIZATION) -> str:
        """Return the id; draw it if there is none.

        Raises:
            BackendError: it cannot be read or kept.
        """
        if self.folder is None:
            return self.id(organization)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder):
                if not (id_ := self.id()):
                    id_ = secrets.token_hex(ID_BYTES)
                    note = {"id": id_, "inode": self.folder.stat().st_ino}
                    _write(self.folder / ID_FILE, json.dumps(note) + "\n")
                return id_
        except OSError as error:
            raise BackendError(
                f"the id of the state backend {self.folder} cannot be kept ({error.strerror}): "
                "make room there, or the folder writable"
            ) from None


def find(folder: Path) -> Backend:
    """Return the backend of a project, as the pulumi CLI and the engine find it.

    Args:
        folder: of the project: its Pulumi.yaml may name the backend.

    Raises:
        BackendError: Pulumi.yaml cannot be read.
    """
    try:
        url = os.environ.get(state_folder.URL) or _named(folder) or state_folder.logged_in()
        found = state_folder.find(url, folder)
    except (BucketUrlError, state_folder.LoginError) as error:
        raise BackendError(str(error)) from None
    return Backend(url=url, folder=found if isinstance(found, Path) else None)


def project_folder() -> Path:
    """Return the folder of the project that is being run: providers work in it or below."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / "Pulumi.yaml").exists()), here)


def project(folder: Path) -> dict[str, Any]:
    """Return what a project's Pulumi.yaml says; it has a name.

    Raises:
        BackendError: it cannot be read.
    """
    path = folder / "Pulumi.yaml"
    try:
        document = yaml.safe_load(path.read_text())
        return {**document, "name": document["name"]}
    except (OSError, yaml.YAMLError, LookupError, TypeError) as error:
        raise BackendError(
            f"{path} cannot be read ({error}); name the project's folder with -C"
        ) from error


def _named(folder: Path) -> str:
    backend = project(folder).get("backend")
    return str(backend.get("url") or "") if isinstance(backend, dict) else ""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against others who would draw its id too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    """Put a file there at once and durably."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".tmp-id-", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)  # no secret, and others of a shared backend read it
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
