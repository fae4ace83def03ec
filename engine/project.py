"""The project and its stacks as Pulumi.yaml and Pulumi.<stack>.yaml describe them.

Only what the embedded engine needs: name, runtime and main of the project, the typed config block
with its defaults, and a stack's settings with secrets decrypted.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.crypto import Crypter
from engine.errors import EngineError, UnsupportedError

STACK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
CONFIG_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True, kw_only=True)
class Project:
    """One Pulumi project.

    Attributes:
        root: folder that holds Pulumi.yaml.
        name: the project's name.
        main: folder or file of the program.
        schema: the config block, key with namespace to declaration.
        backend_url: `backend.url` of Pulumi.yaml, "" without one.
    """

    root: Path
    name: str
    main: Path
    schema: dict[str, Any] = field(default_factory=dict)
    backend_url: str = ""

    @classmethod
    def find(cls, start: Path) -> Project:
        """The project of a folder or of the nearest one above it.

        Raises:
            EngineError: there is none, or it cannot be run.
        """
        for folder in (start, *start.parents):
            path = folder / "Pulumi.yaml"
            if path.is_file():
                return cls._load(path)
        raise EngineError(f"no Pulumi.yaml in {start} or above it; use -C to name the project")

    @classmethod
    def _load(cls, path: Path) -> Project:
        document = _read_yaml(path)
        runtime = document.get("runtime")
        language = runtime.get("name") if isinstance(runtime, dict) else runtime
        if language != "python":
            raise UnsupportedError(f"runtime {language!r}")
        name = document["name"]
        schema = {
            key if ":" in key else f"{name}:{key}": declared
            for key, declared in (document.get("config") or {}).items()
        }
        return cls(
            root=path.parent,
            name=name,
            main=path.parent / document.get("main", "."),
            schema=schema,
            backend_url=(document.get("backend") or {}).get("url", ""),
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A stack's settings.

    Attributes:
        config: key with namespace to value; objects and lists as JSON text, as the SDK takes them.
        secret_keys: the keys whose value is a secret.
        salt: the encryption salt of the settings file, "" when it has none.
    """

    config: dict[str, str]
    secret_keys: list[str]
    salt: str


def check_stack_name(stack: str) -> str:
    """The name, if it is one that a stack can have.

    Raises:
        EngineError: it is not.
    """
    if not STACK_NAME.fullmatch(stack):
        raise EngineError(
            f"stack name {stack!r} is not valid; use 1 to 100 letters, digits, '-', '_' and '.'"
        )
    return stack


def passphrase() -> str:
    """What Pulumi's own variables say, else this user's file for Trainyard.

    Raises:
        EngineError: none of them is set.
    """
    if (phrase := os.environ.get("PULUMI_CONFIG_PASSPHRASE")) is not None:
        return phrase
    named = os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    path = Path(named).expanduser() if named else default_passphrase_file()
    try:
        return path.read_text().strip()
    except OSError as error:
        raise EngineError(
            f"no passphrase: {path} cannot be read ({error.strerror}); set "
            "PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE, or run `make up`"
        ) from None


def default_passphrase_file() -> Path:
    """Where `make up` keeps the passphrase of a user who has set none."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "trainyard" / "passphrase"


def read_settings(project: Project, stack: str) -> Settings:
    """The stack's config over the schema's defaults.

    Raises:
        EngineError: the file is no YAML, a value has the wrong type, or a secret cannot be read.
    """
    path = project.root / f"Pulumi.{stack}.yaml"
    document = _read_yaml(path) if path.is_file() else {}
    salt = document.get("encryptionsalt", "")
    config: dict[str, str] = {}
    secret_keys = [key for key, declared in project.schema.items() if _declares_secret(declared)]
    crypter: Crypter | None = None
    for key, value in (document.get("config") or {}).items():
        full_key = key if ":" in key else f"{project.name}:{key}"
        if isinstance(value, dict) and set(value) == {"secure"}:
            if not salt:
                raise EngineError(f"{path.name}: {key} is encrypted but encryptionsalt is missing")
            crypter = crypter or Crypter(passphrase(), salt)
            config[full_key] = crypter.decrypt(value["secure"])
            secret_keys.append(full_key)
        else:
            _check_type(path.name, key, value, project.schema.get(full_key))
            config[full_key] = _as_text(value)
    for key, declared in project.schema.items():
        if key in config:
            continue
        default = declared.get("default", declared.get("value")) if _typed(declared) else declared
        if default is not None:
            config[key] = _as_text(default)
    return Settings(config=config, secret_keys=sorted(set(secret_keys)), salt=salt)


def _typed(declared: Any) -> bool:
    return isinstance(declared, dict) and bool({"type", "default", "value"} & set(declared))


def _declares_secret(declared: Any) -> bool:
    return _typed(declared) and bool(declared.get("secret"))


def _check_type(file: str, key: str, value: Any, declared: Any) -> None:
    expected = declared.get("type") if _typed(declared) else None
    if expected is None or value is None:
        return
    wrong = not isinstance(value, CONFIG_TYPES[expected])
    # YAML's `true` is a Python int too, and `pulumi config set` writes numbers as strings.
    if expected == "integer":
        wrong = isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value))
    if expected == "boolean":
        wrong = str(value).lower() not in ("true", "false")
    if wrong:
        raise EngineError(f"{file}: {key} is {value!r}; it must be of type {expected}")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise EngineError(f"{path.name} is not valid YAML: {error}") from None
    if not isinstance(document, dict):
        raise EngineError(f"{path.name} must hold a mapping, not {type(document).__name__}")
    return document
