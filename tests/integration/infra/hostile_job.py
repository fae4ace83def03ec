"""A job that tries actions that no job should be able to do, and prints its results (F44).

Tests submit a copy of this module, and it knows secrets by their digests only: so it finds none in
the upload.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SECRET = re.compile(rb"[A-Za-z0-9_./+-]{8,}")
REPORT = "hostile: "
SKIPPED = ("/dev", "/opt", "/proc", "/sys", "/usr")
PACKAGES = re.compile(r"python3\.\d+|\.cache|dpkg|apt")  # folders of thousands of files
LARGEST = 1 << 20  # bytes of a file that is read
OF_PROCESSES = ("cmdline", "environ")
DOCKER = "/var/run/docker.sock"
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
METADATA = ("169.254.169.254", 80)
SECONDS = 2.0  # until an address is taken for closed


def arguments(
    known: Mapping[str, str],
    *,
    folders: tuple[str, ...] = ("/",),
    key: str = "",
    metadata: bool = False,
) -> str:
    """The job's arguments.

    Args:
        known: secrets by a name for the report; each one word of SECRET.
        folders: to be searched.
        key: of an object of another run.
        metadata: whether it asks the cloud for the machine's metadata.
    """
    digests = {hashlib.sha256(text.encode()).hexdigest(): name for name, text in known.items()}
    asked = {"digests": digests, "folders": folders, "key": key, "metadata": metadata}
    # So that few words are hashed.
    return json.dumps(asked | {"lengths": sorted({len(text) for text in known.values()})})


def script(folder: Path) -> tuple[str, str]:
    """A copy of this module in a folder of its own, to be submitted where the most secrets are."""
    (folder / "job").mkdir()
    return shutil.copy(__file__, folder / "job"), "--on-head"


def longest_word(text: str) -> str:
    """The identifying part of a text: a private key's last line, as all have the same first."""
    return max(reversed(SECRET.findall(text.encode())), key=len).decode()


def of_this_machine(stack: Any, folder: Path) -> dict[str, str]:
    """Secrets that a job elsewhere must not have: a key, the state and its passphrase.

    Args:
        stack: that is up, whose passphrase is in the environment of processes here.
        folder: for the key.
    """
    key = folder / "id_ed25519"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    (state,) = (stack.project.parent / "backend").rglob("test.json")
    return {
        "key": longest_word(key.read_text()),
        "state": longest_word(state.read_text()),
        "passphrase": stack.environment["PULUMI_CONFIG_PASSPHRASE"],
    }


def report(said: str) -> dict[str, Any]:
    """The job's reported results: `secrets` with the places of each, and `rights`."""
    (line,) = re.findall(rf"{REPORT}(\{{.*\}})", said)
    found: dict[str, Any] = json.loads(line)
    return found


def _files(folder: str) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below[:] = [
            name
            for name in below
            if str(Path(place, name)) not in SKIPPED and not PACKAGES.fullmatch(name)
        ]
        for name in names:
            path = Path(place, name)
            try:
                found = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                yield path


def _texts(folders: list[str]) -> Iterator[tuple[str, Path]]:
    """Names and paths of everything that is read."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            yield from ((f"/proc/*/{file}", process / file) for file in OF_PROCESSES)
    for folder in folders:
        yield from ((str(path), path) for path in _files(folder))


def _secrets(wanted: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for name, path in _texts(wanted["folders"]):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        for word in SECRET.findall(content):
            if len(word) not in wanted["lengths"]:
                continue
            if secret := wanted["digests"].get(hashlib.sha256(word).hexdigest()):
                found.setdefault(secret, set()).add(name)
    return {name: sorted(places) for name, places in sorted(found.items())}


def _answers(address: Any) -> bool:
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    with socket.socket(family) as asked:
        asked.settimeout(SECONDS)
        try:
            asked.connect(address)
        except OSError:
            return False
    return True


def _reads_object(key: str) -> bool:
    import boto3  # not where this module only makes arguments

    bucket = os.environ["TRAINYARD_STORAGE_URL"].removeprefix("s3://")
    try:
        boto3.client("s3").get_object(Bucket=bucket, Key=key)
    except Exception:  # any refusal
        return False
    return True


def _rights(wanted: dict[str, Any]) -> list[str]:
    tried = {
        "root": os.getuid() == 0,
        "sudo": _succeeds("sudo", "-n", "true"),
        "Docker": _answers(DOCKER),
        "a token of Kubernetes": (POD / "token").exists(),
        "the cloud's metadata": wanted["metadata"] and _answers(METADATA),
        "other runs": bool(wanted["key"]) and _reads_object(wanted["key"]),
    }
    return [name for name, got in tried.items() if got]


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    got = {"secrets": _secrets(asked), "rights": _rights(asked)}
    print(REPORT + json.dumps(got), flush=True)  # noqa: T201 - the job's log
