"""The packages of a project, from its Pipfile or requirements.txt, as pip on the box installs them.

pip looks for each package in all sources of a Pipfile, also if it names one with `index`.
"""

import hashlib
import os
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainyard.access import users_file
from trainyard.client import listing, package
from trainyard.client.errors import ClientError
from trainyard.client.listing import Entry

PIPFILE, REQUIREMENTS = "Pipfile", "requirements.txt"
FILES = (PIPFILE, "Pipfile.lock", REQUIREMENTS)
NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# The box has its own Ray, which must not be replaced while it runs, and needs nothing of ours.
ON_THE_BOX = {"ray", "trainyard", "trainyard-ray"}
REPOSITORIES = ("git", "hg", "svn", "bzr")
# Pipenv's short form of markers: `sys_platform = "== 'linux'"`.
MARKERS = (
    *("os_name", "sys_platform", "platform_machine", "platform_python_implementation"),
    *("platform_release", "platform_system", "platform_version", "python_version"),
    *("python_full_version", "implementation_name", "implementation_version"),
)
FIELDS = {
    *("version", "extras", "markers", "index", "ref", "subdirectory", "path", "file", "editable"),
    *REPOSITORIES,
    *MARKERS,
}
VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")
LOCAL = re.compile(r"(?:(?:-e|--editable)[ =]*)?(?P<path>\.{1,2}(?:/[^;[]*)?|/[^;[]*)(?P<rest>.*)")
FOLDER = ".packages"  # of the upload
# Ray sets this variable for pip: the folder with the unpacked upload.
UPLOAD = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/"


@dataclass(frozen=True)
class Packages:
    """What pip installs on the box."""

    lines: list[str] = field(default_factory=list)  # of a requirements file
    uploads: list[Entry] = field(default_factory=list)  # of packages that only this machine has
    variables: dict[str, str] = field(default_factory=dict)  # in addresses, with their values here


def files(folder: Path) -> list[Path]:
    """The files of a project that name packages, for setup commands to install from."""
    return [path for name in FILES if (path := folder / name).is_file()]


def required_packages(folder: Path) -> Packages:
    """Return the packages of the Pipfile, else of requirements.txt, else none.

    Raises:
        ClientError: a file cannot be read or used, or a local package or a variable is missing.
    """
    for name, read in ((PIPFILE, _of_pipfile), (REQUIREMENTS, _of_requirements)):
        path = folder / name
        try:
            text = users_file.read(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClientError(f"cannot read {path} ({error.strerror}): correct it") from None
        found = Packages()
        for line in read(text, path, found.uploads):
            if _name(line) not in ON_THE_BOX:
                found.variables.update(_variables(line, path))
                found.lines.append(VARIABLE.sub(r"${\1}", line))
        return found
    return Packages()


def _name(line: str) -> str:
    found = NAME.match(line)
    return found[1].lower() if found else ""


def _variables(line: str, path: Path) -> dict[str, str]:
    names = [name for name in VARIABLE.findall(line) if name not in UPLOAD]
    if missing := [name for name in names if name not in os.environ]:
        raise ClientError(
            f"{path} names ${{{missing[0]}}}, which is not set here: export {missing[0]}=… first"
        )
    return {name: os.environ[name] for name in names}


def _local(place: str, path: Path, uploads: list[Entry]) -> str:
    """Takes a folder or file of this machine along; returns its place on the box."""
    found = (path.parent / place).resolve()
    project = any((found / name).is_file() for name in ("pyproject.toml", "setup.py"))
    if not (project or found.is_file()):
        raise ClientError(
            f"{path} names {place}, where no pyproject.toml, setup.py or wheel is: correct the path"
        )
    files = listing.of_module(found, listing.NEVER_UPLOADED).files
    # Ray caches installed packages by the text of the lines: changed files need another line.
    digest = hashlib.sha256(package.pack(listing.Listing(files))).hexdigest()[:16]
    top = f"{FOLDER}/{digest}/{found.name if found.is_dir() else ''}".rstrip("/")
    uploads += [replace(each, name=f"{top}/{each.name}") for each in files]
    return f"{UPLOAD}{top}{'' if found.is_dir() else f'/{found.name}'}"


def _of_requirements(text: str, path: Path, uploads: list[Entry]) -> list[str]:
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    found = []
    for line in filter(None, lines):
        if re.match(r"-[rc]\b|--(requirement|constraint)\b", line):
            raise ClientError(
                f"{path}: {line!r} names a file of this machine: name the packages themselves, or "
                "install them by setup_commands of ray_config.yaml"
            )
        here = LOCAL.fullmatch(line)
        found.append(_local(here["path"].strip(), path, uploads) + here["rest"] if here else line)
    return found


def _of_pipfile(text: str, path: Path, uploads: list[Entry]) -> list[str]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientError(f"{path} is not TOML ({error}): correct it") from None
    sources, packages = content.get("source", []), content.get("packages", {})
    try:
        lines = [line for n, source in enumerate(sources) for line in _source(source, first=not n)]
        names = [source.get("name") for source in sources]
    except (AttributeError, KeyError, TypeError):
        raise ClientError(f"{path}: each [[source]] needs a url: correct it") from None
    if not isinstance(packages, dict):
        raise ClientError(f"{path}: [packages] is not a table: correct it")
    for name, fields in packages.items():
        index = fields.get("index") if isinstance(fields, dict) else None
        if index not in (None, *names):
            raise ClientError(
                f"{path}: {name} names the index {index!r}, which is not that of a [[source]]"
            )
    return lines + [_line(name, fields, path, uploads) for name, fields in packages.items()]


def _source(source: dict[str, Any], *, first: bool) -> list[str]:
    lines = [f"{'--index-url' if first else '--extra-index-url'} {source['url']}"]
    if source.get("verify_ssl", True) is False or source["url"].startswith("http://"):
        lines.append(f"--trusted-host {urlsplit(source['url']).netloc.rpartition('@')[2]}")
    return lines


def _line(name: str, given: Any, path: Path, uploads: list[Entry]) -> str:
    """One package as pip writes it: `einops = "==0.8.1"` is `einops==0.8.1`."""
    fields = {"version": given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or fields.keys() - FIELDS:
        raise ClientError(
            f"{path}: {name} = {given!r:.80} has more than {', '.join(sorted(FIELDS))}: leave "
            "the rest out, or install it by setup_commands of ray_config.yaml"
        )
    extras = f"[{','.join(fields['extras'])}]" if fields.get("extras") else ""
    markers = [f"({fields['markers']})"] if fields.get("markers") else []
    markers += [f"{each} {fields[each]}" for each in MARKERS if each in fields]
    after = f" ; {' and '.join(markers)}" if markers else ""
    for kind in REPOSITORIES:
        if kind in fields:
            ref = f"@{fields['ref']}" if "ref" in fields else ""
            below = f"#subdirectory={fields['subdirectory']}" if "subdirectory" in fields else ""
            return f"{name}{extras} @ {kind}+{fields[kind]}{ref}{below}{after}"
    place = str(fields.get("path") or fields.get("file") or "")
    if "://" in place:
        return f"{name}{extras} @ {place}{after}"
    if place:  # not editable on the box: the copy there is of no use to an editor
        return f"{_local(place, path, uploads)}{extras}{after}"
    version = fields.get("version", "*")
    return f"{name}{extras}{'' if version == '*' else version}{after}"
