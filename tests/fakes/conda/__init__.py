"""A conda and its channel: no package registry here has conda, mamba, micromamba or a channel.

`program.py` is conda's `env create` and `env update` by rattler, pixi's solver and installer, which
is a package of PyPI. So solving, linking and the environment's records are real. What a file lists
for pip is what these tests run with.
"""

import hashlib
import io
import json
import shlex
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.machines import local

PROGRAM = Path(__file__).with_name("program.py")
RATTLER = ("--with", "py-rattler==0.28.0", "--with", "pyyaml")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def write(home: Path) -> None:
    """Write `bin/conda`, for which uv fetches rattler at its first call, and what activates."""
    uv = local.environment_program("uv")
    run = [uv, "run", "--quiet", "--no-project", "--python", sys.executable, *RATTLER]
    call = [*run, "python", str(PROGRAM), sysconfig.get_path("purelib")]
    path, activates = home / "bin/conda", home / "etc/profile.d/conda.sh"
    for each in (path, activates):
        each.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
    path.chmod(0o755)
    activates.write_text('conda() { export PATH="$2/bin:$PATH"; }\n')


def channel(folder: Path) -> str:
    """Make a channel of this machine's Python, an empty pip and a module `canary`; its address."""
    version = "{}.{}.{}".format(*sys.version_info)
    home = f"home = {sys.base_prefix}/bin\nversion = {version}\n"
    links = {f"bin/{name}": f"{sys.base_prefix}/bin/python3" for name in ("python", "python3")}
    _package(folder / "linux-64", "python", version, {"pyvenv.cfg": home}, links)
    module = {f"lib/python{PYTHON}/site-packages/canary.py": "SONG = 'sung'\n"}
    _package(folder / "noarch", "canary", "1.0", module, depends=[f"python {PYTHON}.*"])
    _package(folder / "noarch", "pip", "1.0", {})
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
    folder.mkdir(parents=True, exist_ok=True)
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
    index = folder / "repodata.json"
    none: dict[str, Any] = {"info": {"subdir": folder.name}, "packages": {}, "packages.conda": {}}
    listed = json.loads(index.read_text()) if index.exists() else none
    listed["packages"][file.name] = about | {"sha256": digest, "size": file.stat().st_size}
    index.write_text(json.dumps(listed))


def _path(path: str, kind: str, text: str) -> dict[str, object]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(text)}
