"""Runtime environments by name, from training/config/runtime, or by file."""

import re
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from trainyard.access import users_file
from trainyard.client import scripts
from trainyard.client.errors import ClientError, guess

FOLDER = scripts.JOBS / "config" / "runtime"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


Kind = tuple[str, Callable[[object], bool]]
TEXT: Kind = ("a text", _is_text)
TEXTS: Kind = ("a list of texts", lambda v: isinstance(v, list) and all(map(_is_text, v)))
MAPPING: Kind = ("a mapping", lambda v: isinstance(v, dict))
MAPPING_OR_TEXT: Kind = ("a mapping or a text", lambda v: isinstance(v, str | dict))
PACKAGES: Kind = ("a list, a mapping or a file's name", lambda v: isinstance(v, str | list | dict))
# Ray ignores a key that it does not know, and takes a text for a list of letters. Its own checks
# cover the other values (trainyard/client/preflight.py).
KEYS: dict[str, Kind] = {
    "working_dir": TEXT,
    "py_modules": TEXTS,
    "excludes": TEXTS,
    "env_vars": ("a mapping of names to texts", MAPPING[1]),
    "config": MAPPING,
    "pip": PACKAGES,
    "uv": PACKAGES,
    "conda": MAPPING_OR_TEXT,
    "container": MAPPING,
    **dict.fromkeys(("image_uri", "py_executable"), TEXT),
    "java_jars": TEXTS,
    "worker_process_setup_hook": TEXT,
    **dict.fromkeys(("_nsight", "_rocprof_sys"), MAPPING_OR_TEXT),
}
LISTS = ("pip", "uv")  # or the name of a requirements file
# A block of PEP 723: its type, and its lines with their `#`.
BLOCK = re.compile(r"^# /// ([\w-]+)$\s((?:^#(?:| .*)$\s)+)^# ///$", re.MULTILINE)
CONFIG_KEYS = ("setup_timeout_seconds", "eager_install", "log_files")


def find(wanted: str) -> Path:
    """Finds the file of a runtime environment, by a name such as `tpu` or its path.

    Raises:
        ClientError: it is neither. The reader of a path tells whether it can be read.
    """
    path, named = Path(wanted), FOLDER / f"{wanted}.yaml"
    if "/" in wanted or path.suffix or path.is_file():
        return path
    if named.is_file():
        return named
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise ClientError(
        f"no runtime environment is called {wanted[:80]!r}: give one of {names}, or the path of a "
        "YAML or JSON file"
    )


def read(file: Path) -> dict[str, Any]:
    """Reads a runtime environment; keys without a value are left out.

    Raises:
        ClientError: it cannot be read, or Ray would ignore or misread a part of it.
    """
    where = f"runtime environment {file}"
    found = _yaml(file, where)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ClientError(
            f"{where} is not a mapping of Ray's keys to values: begin it with a line such as "
            "`pip: [humanize]`"
        )
    env = {key: value for key, value in found.items() if value is not None}
    _check_keys(env, KEYS, where)
    for key, value in env.items():
        kind, fits = KEYS[key]
        if not fits(value):
            raise ClientError(f"{where}: {key} is {value!r:.80}, and must be {kind}: mend it")
    for name, value in env.get("env_vars", {}).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ClientError(
                f"{where}: env_vars has {name!r:.80}: {value!r:.80}, and Ray takes texts only: "
                "put both in quotes"
            )
    _check_keys(env.get("config", {}), CONFIG_KEYS, f"config of {where}")
    return env


def with_more(
    env: dict[str, Any], packages: Sequence[str], variables: Sequence[str]
) -> dict[str, Any]:
    """Return a runtime environment with more packages of pip, and variables as `KEY=VALUE`.

    Raises:
        ClientError: a variable has another form, or the environment has packages of another tool.
    """
    made = dict(env)
    if packages:
        if other := next((key for key in ("uv", "conda") if key in env), ""):
            raise ClientError(
                f"the runtime environment has {other}, and pip installs {', '.join(packages)}: "
                f"list these packages under {other} too, and leave out --pip"
            )
        pip = with_files(env).get("pip", [])
        listed = pip if isinstance(pip, dict) else {"packages": pip}
        made["pip"] = listed | {"packages": [*listed.get("packages", []), *packages]}
    for each in variables:
        name, sign, value = each.partition("=")
        if not sign or not name.isidentifier():
            raise ClientError(f"--env {each[:80]!r} is not KEY=VALUE, such as --env SEED=1")
        made["env_vars"] = made.get("env_vars", {}) | {name: value}
    return made


def requirements(files: Sequence[Path]) -> list[str]:
    """Return the lines of requirements files, without comments.

    Raises:
        ClientError: one cannot be read.
    """
    texts = [_text(file, "the requirements") for file in files]
    lines = [line.partition(" #")[0].strip() for text in texts for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def inline(script: Path) -> list[str]:
    """Return the dependencies that a script names in its first comment, as PEP 723 has them.

    Raises:
        ClientError: the comment is not valid TOML, or `dependencies` is not a list of texts.
    """
    text = script.read_text(errors="replace")
    block = next((found[2] for found in BLOCK.finditer(text) if found[1] == "script"), "")
    lines = [line[2:] if line.startswith("# ") else line[1:] for line in block.splitlines()]
    try:
        found = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise ClientError(f"{script}: the comment `# /// script` is not TOML: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ClientError(f"{script}: dependencies of `# /// script` are {found!r:.80}, no texts")
    return found


def with_files(env: dict[str, Any]) -> dict[str, Any]:
    """Return a runtime environment with the packages of the files that it names.

    Ray's own client reads them likewise: the server has none of these files.

    Raises:
        ClientError: a file cannot be read.
    """
    where = "the runtime environment"
    found: dict[str, Any] = {}
    for key in LISTS:
        if isinstance(name := env.get(key), str):
            found[key] = _text(Path(name), f"{key} of {where}").strip().splitlines()
    conda = env.get("conda")
    if isinstance(conda, str) and conda.endswith((".yaml", ".yml")):
        found["conda"] = _yaml(Path(conda), f"conda of {where}")
    return env | found


def _text(path: Path, what: str) -> str:
    try:
        return users_file.read(path)
    except OSError as error:
        raise ClientError(f"cannot read {what}: {path}: {error.strerror}") from None


def _yaml(path: Path, what: str) -> Any:
    from trainyard.access import settings_file  # noqa: PLC0415 - slow

    try:
        return settings_file.read(path)
    except (OSError, ValueError) as error:
        raise ClientError(f"cannot read {what}: {error}") from None


def _check_keys(found: Collection[object], known: Collection[str], where: str) -> None:
    for key in found:
        if key not in known:
            raise ClientError(
                f"{where} has the key {str(key)[:80]!r}, which Ray does not know: "
                f"{guess(str(key), known)}keys are {', '.join(known)}"
            )
