"""The packages of a project, from its Pipfile or requirements.txt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from trainyard.client.errors import ClientError

PIPFILE, REQUIREMENTS = "Pipfile", "requirements.txt"
FILES = (PIPFILE, "Pipfile.lock", REQUIREMENTS)
NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# The box has its own Ray, which must not be replaced while it runs, and needs nothing of ours.
ON_THE_BOX = {"ray", "trainyard"}
FIELDS = {"version", "extras", "markers", "git", "ref"}


def files(folder: Path) -> list[Path]:
    """The files of a project that name packages, for setup commands to install from."""
    return [path for name in FILES if (path := folder / name).is_file()]


def requirements(folder: Path) -> list[str]:
    """Return the packages as lines for pip: of the Pipfile, else of requirements.txt, else none.

    Raises:
        ClientError: a file cannot be read, or names a file of this machine.
    """
    for name, read in ((PIPFILE, _of_pipfile), (REQUIREMENTS, _of_requirements)):
        path = folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise ClientError(f"cannot read {path} ({error}): correct or remove it") from None
        return [line for line in read(text, path) if _name(line) not in ON_THE_BOX]
    return []


def _name(line: str) -> str:
    found = NAME.match(line)
    return found[1].lower() if found else ""


def _of_requirements(text: str, path: Path) -> list[str]:
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    for line in lines:
        if re.match(r"-[rce]\b|--(requirement|constraint|editable)\b|\.{0,2}/", line):
            raise ClientError(
                f"{path}: {line!r} names a file of this machine: name the package itself, or "
                "install it by setup_commands of ray_config.yaml"
            )
    return [line for line in lines if line]


def _of_pipfile(text: str, path: Path) -> list[str]:
    try:
        packages = tomllib.loads(text).get("packages", {})
    except tomllib.TOMLDecodeError as error:
        raise ClientError(f"{path} is not TOML ({error}): correct it") from None
    return [_line(name, wanted, path) for name, wanted in packages.items()]


def _line(name: str, wanted: Any, path: Path) -> str:
    """One package as pip writes it: `einops = "==0.8.1"` is `einops==0.8.1`."""
    fields = {"version": wanted} if isinstance(wanted, str) else wanted
    if not isinstance(fields, dict) or fields.keys() - FIELDS:
        raise ClientError(
            f"{path}: {name} = {wanted!r:.80} has more than {', '.join(sorted(FIELDS))}: leave "
            "the rest out, or install it by setup_commands of ray_config.yaml"
        )
    extras = f"[{','.join(fields['extras'])}]" if fields.get("extras") else ""
    markers = f" ; {fields['markers']}" if fields.get("markers") else ""
    if "git" in fields:
        ref = f"@{fields['ref']}" if "ref" in fields else ""
        return f"{name}{extras} @ git+{fields['git']}{ref}{markers}"
    version = fields.get("version", "*")
    return f"{name}{extras}{'' if version == '*' else version}{markers}"
