"""A conda and its channel: no package registry here has conda, mamba, micromamba or a channel.

`program.py` is conda's `env create` and `env update` by rattler, pixi's solver and installer, which
is a package of PyPI. So solving, linking and the environment's records are real.
"""

import hashlib
import io
import json
import shlex
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from infra.machines import local

PROGRAM = Path(__file__).with_name("program.py")
RATTLER = ("--with", "py-rattler==0.28.0", "--with", "pyyaml")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def write(folder: Path) -> None:
    """Write the program `conda` into a folder; uv fetches rattler at its first call."""
    uv = local.environment_program("uv")
    run = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *RATTLER]
    path = folder / "conda"
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*run, "python", str(PROGRAM)])} "$@"\n')
    path.chmod(0o755)


def channel(folder: Path) -> str:
    """Make a channel of this machine's Python, and of a module `canary` for it; its address."""
    version = "{}.{}.{}".format(*sys.version_info)
    home = f"home = {sys.base_prefix}/bin\nversion = {version}\n"
    links = {f"bin/{name}": f"{sys.base_prefix}/bin/python3" for name in ("python", "python3")}
    _package(folder / "linux-64", "python", version, {"pyvenv.cfg": home}, links)
    module = {f"lib/python{PYTHON}/site-packages/canary.py": "SONG = 'sung'\n"}
    _package(folder / "noarch", "canary", "1.0", module, depends=[f"python {PYTHON}.*"])
    return folder.as_uri()


def _package(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, str],
    links: dict[str, str] | None = None,
    depends: Sequence[str] = (),
) -> None:
    about = {"name": name, "version": version, "build": "0", "build_number": 0}
    about |= {"depends": [*depends], "subdir": folder.name}
    paths = [_path(each, "hardlink", text) for each, text in files.items()]
    paths += [_path(each, "softlink", "") for each in links or {}]
    files = files | {
        "info/index.json": json.dumps(about),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
    }
    folder.mkdir(parents=True)
    file = folder / f"{name}-{version}-0.tar.bz2"
    with tarfile.open(file, "w:bz2") as archive:
        for each, text in files.items():
            member = tarfile.TarInfo(each)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        for each, target in (links or {}).items():
            member = tarfile.TarInfo(each)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    listed = {file.name: about | {"sha256": digest, "size": file.stat().st_size}}
    repodata = {"info": {"subdir": folder.name}, "packages": listed, "packages.conda": {}}
    (folder / "repodata.json").write_text(json.dumps(repodata))


def _path(path: str, kind: str, text: str) -> dict[str, object]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(text)}
