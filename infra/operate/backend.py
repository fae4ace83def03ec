"""The state backend of the stacks, and its id, which marks their things in an account.

One person may use two backends with one account. Things with another backend's id are in a state
that cannot be read from here.
"""

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pulumi

from trainyard.access import settings_file, state_folder, users_file
from trainyard.access.state_bucket import BucketError, BucketPath, BucketUrlError
from trainyard.access.state_folder import ORGANIZATION, StatePath

ID_BYTES = 4
ID_FILE = "trainyard.json"  # next to meta.yaml
DRAWS = 5  # tries, while others draw at the same time
# Where the CLI finds the account of an Azure container.
AZURE, AZURE_ACCOUNT, AZURE_VARIABLE = "azblob", "storage_account", "AZURE_STORAGE_ACCOUNT"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Where states are.

    Attributes:
        url: as PULUMI_BACKEND_URL has it.
        place: absolute folder of the states, or their place in a bucket; None behind an API.
    """

    url: str
    place: StatePath | None

    def id(self, organization: str = ORGANIZATION) -> str:
        """Return the backend's own 8 hexadecimal characters, "" if none were drawn yet.

        A folder or bucket has the id that was drawn for it. One that was copied, or moved to
        another disk or store, has none until the next is drawn: copy and original are two backends
        from then on. Behind an API, each organization has one.

        Raises:
            pulumi.RunError: the id cannot be read.
        """
        if self.place is None:
            return _of_address(self.url, organization)
        if isinstance(self.place, BucketPath):
            return _drawn_in_bucket(self.place)[0]
        path = self.place / ID_FILE
        try:
            note = json.loads(path.read_text())
            return str(note["id"]) if note["inode"] == self.place.stat().st_ino else ""
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise _unreadable(path, error) from None

    def draw_id(self, organization: str = ORGANIZATION) -> str:
        """Return the id; draw one if it is missing.

        Raises:
            pulumi.RunError: it cannot be read or kept.
        """
        if self.place is None:
            return self.id(organization)
        try:
            if isinstance(self.place, BucketPath):
                return _draw_in_bucket(self.place)
            self.place.mkdir(parents=True, exist_ok=True)
            with users_file.exclusive(self.place):
                if not (id_ := self.id()):
                    id_ = secrets.token_hex(ID_BYTES)
                    note = {"id": id_, "inode": self.place.stat().st_ino}
                    text = json.dumps(note) + "\n"
                    # Others of a shared backend read it.
                    users_file.replace(self.place / ID_FILE, text, mode=0o644)
                return id_
        except OSError as error:
            raise pulumi.RunError(
                f"the id of the state backend {self.place} cannot be kept ({error.strerror}): "
                "make room there, or make it writable"
            ) from None


def find(folder: Path) -> Backend:
    """Return the backend of a project, as the pulumi CLI and the engine find it.

    Raises:
        pulumi.RunError: the project's Pulumi.yaml, which may name it, cannot be read.
    """
    try:
        url = os.environ.get(state_folder.URL) or _named(folder) or state_folder.logged_in()
        found = state_folder.find(url, folder)
    except (BucketUrlError, state_folder.LoginError) as error:
        raise pulumi.RunError(str(error)) from None
    return Backend(url=url, place=found)


def project_folder() -> Path:
    """Return the folder of the project that is being run: providers work in it or below."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / "Pulumi.yaml").exists()), here)


def project(folder: Path) -> dict[str, Any]:
    """Return the content of a project's Pulumi.yaml, which has a name.

    Raises:
        pulumi.RunError: it cannot be read.
    """
    path = folder / "Pulumi.yaml"
    try:
        document = settings_file.read(path)
        return {**document, "name": document["name"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise pulumi.RunError(
            f"{path} cannot be read ({error}); name the project's folder with -C"
        ) from error


def _named(folder: Path) -> str:
    backend = project(folder).get("backend")
    return str(backend.get("url") or "") if isinstance(backend, dict) else ""


def _of_address(url: str, organization: str) -> str:
    """Return the id of a backend that stores none: it follows from the address."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    # The query says how to reach it, which may differ between users. Only Azure's containers can
    # share a name, in different accounts, which are named there.
    account = dict(parse_qsl(parts.query)).get(AZURE_ACCOUNT, os.environ.get(AZURE_VARIABLE, ""))
    owner = f"{account}@" if parts.scheme == AZURE else ""
    text = f"{parts.scheme}://{owner}{host}{parts.path.rstrip('/')}#{organization}"
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * ID_BYTES]


def _drawn_in_bucket(place: BucketPath) -> tuple[str, dict[str, str], str]:
    """Return the id of a bucket as it is reached, all ids in it by address, and their tag.

    Two stores may have buckets of one name, and a bucket may be copied with all its content: an
    id counts at the address for which it was drawn.
    """
    path = place / ID_FILE
    try:
        content, tag = path.read_tagged()
        ids = {str(address): str(id_) for address, id_ in json.loads(content)["ids"].items()}
    except FileNotFoundError:
        return "", {}, ""
    except BucketError as error:
        raise pulumi.RunError(
            f"{path} cannot be read ({error.strerror}): look at the address and the keys of the "
            "state backend"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from None
    return ids.get(place.address, ""), ids, tag


def _draw_in_bucket(place: BucketPath) -> str:
    for _ in range(DRAWS):
        id_, ids, tag = _drawn_in_bucket(place)
        if id_:
            return id_
        ids[place.address] = secrets.token_hex(ID_BYTES)
        content = json.dumps({"ids": ids}).encode() + b"\n"
        try:
            if tag:
                (place / ID_FILE).replace(content, tag)
            else:
                (place / ID_FILE).create(content)
        except FileExistsError:
            continue  # another process drew an id, or only the answer to this write was lost
        return ids[place.address]
    raise pulumi.RunError(
        f"the id of the state backend {place} cannot be kept: others write it at the same time; "
        "run the command again"
    )


def _unreadable(path: StatePath, error: Exception) -> pulumi.RunError:
    return pulumi.RunError(
        f"{path} cannot be read ({error}); restore it, or remove it for a new id: things with "
        "the old one are then no longer known as this backend's"
    )
