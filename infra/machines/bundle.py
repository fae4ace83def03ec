"""The part of this project that other machines run: the agent, and its environment's lock."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from infra.machines.local import cache_folder
from trainyard.access import users_file

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    *("agent", "claims", "ending", "folders", "life", "locked_supervisord", "owned_processes"),
    *("ports", "process_health", "programs", "supervisor"),
)
FILES = {
    **{f"node/{name}.py": f"node/{name}.py" for name in ("__init__", *MODULES)},
    "setup.txt": "requirements/setup.txt",
    "host.txt": "requirements/host.txt",
}
MODE = 0o644


def package() -> dict[str, bytes]:
    """Return the library with its client, by paths below the agent's folder."""
    files = (path for path in (ROOT / "trainyard").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in files
        if path.suffix != ".pyc"
    }


def bundle(root: Path = ROOT, own: Mapping[str, bytes] | None = None) -> Path:
    """Return an archive of it and the user's own files, named by its content."""
    content = {name: (root / path).read_bytes() for name, path in FILES.items()}
    archive = _archive(dict(sorted((content | dict(own or {})).items())))
    path = cache_folder() / "bundles" / f"agent-{sha256(archive).hexdigest()[:16]}.tar.gz"
    if not path.exists() or path.read_bytes() != archive:
        path.parent.mkdir(parents=True, exist_ok=True)
        users_file.replace(path, archive, mode=0o600)
    return path


def _archive(content: dict[str, bytes]) -> bytes:
    """Return the same bytes for the same content: no time, no owner."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), MODE
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
