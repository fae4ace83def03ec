"""The project and its stacks as Pulumi.yaml and Pulumi.<stack>.yaml describe them.

Only what the embedded engine needs: name, runtime and main of the project, the typed config block
with its defaults, and a stack's settings with secrets decrypted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from engine.crypto import Crypter
from engine.errors import EngineError, UnsupportedError
from engine.passphrase import passphrase

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
NAME_RULE = "use 1 to 100 letters, digits, '-', '_' and '.', but not '.' or '..'"
NOT_NAMES = (".", "..")  # the CLI takes them, and writes beside the stack's own folders
OWN_PROVIDERS = ("", "default", "passphrase")
GO_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)| \d\d:\d\d:\d\d(\.\d+)?)?"
)
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
        name = document.get("name")
        if not _is_name(name):
            raise EngineError(f"{path}: the name {name!r} is not valid; {NAME_RULE}")
        config = _mapping(document, "config", path.name)
        return cls(
            root=path.parent,
            name=name,
            main=path.parent / str(document.get("main", ".")),
            schema={
                key if ":" in key else f"{name}:{key}": declared for key, declared in config.items()
            },
            backend_url=str(_mapping(document, "backend", path.name).get("url", "")),
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
    if not _is_name(stack):
        raise EngineError(f"stack name {stack!r} is not valid; {NAME_RULE}")
    return stack


def read_settings(project: Project, stack: str, state_salt: str = "") -> Settings:
    """The stack's config over the schema's defaults.

    Args:
        project: the project.
        stack: the stack's name.
        state_salt: the encryption salt of the stack's state, for secrets of a settings file that
            has none.

    Raises:
        EngineError: the file is no YAML, a value has the wrong type, or a secret cannot be read.
    """
    path = project.root / f"Pulumi.{stack}.yaml"
    document = _read_yaml(path) if path.is_file() else {}
    if (provider := str(document.get("secretsprovider") or "")) not in OWN_PROVIDERS:
        raise UnsupportedError(f"the secrets provider {provider!r} of {path.name}")
    salt = str(document.get("encryptionsalt") or "")
    secrets = _Secrets(path.name, salt or state_salt)
    config: dict[str, str] = {}
    secret_keys = [key for key, declared in project.schema.items() if _declares_secret(declared)]
    for key, given in _mapping(document, "config", path.name).items():
        full_key = key if ":" in key else f"{project.name}:{key}"
        value, is_secret = secrets.reveal(key, given)
        if is_secret:
            secret_keys.append(full_key)
        else:
            _check_type(path.name, key, value, project.schema.get(full_key))
        config[full_key] = _as_text(value)
    for key, declared in project.schema.items():
        if key in config:
            continue
        default = declared.get("default", declared.get("value")) if _typed(declared) else declared
        if default is not None:
            config[key] = _as_text(_plain(project.name, key, default, lambda text: text))
    return Settings(config=config, secret_keys=sorted(set(secret_keys)), salt=salt)


class _Secrets:
    """Reads the values of one settings file that are encrypted, or hold what is.

    The key is made from the passphrase when the first of them is met: that takes a moment.
    """

    def __init__(self, file: str, salt: str) -> None:
        self._file = file
        self._salt = salt
        self._crypter: Crypter | None = None

    def reveal(self, key: str, given: Any) -> tuple[Any, bool]:
        """A value in the clear, and whether any of it was encrypted."""
        found: list[str] = []

        def decrypt(ciphertext: str) -> str:
            found.append(ciphertext)
            return self._decrypt(key, ciphertext)

        return _plain(self._file, key, given, decrypt), bool(found)

    def _decrypt(self, key: str, ciphertext: str) -> str:
        if not self._salt:
            raise EngineError(
                f"{self._file}: {key} is encrypted but encryptionsalt is missing, here and in the "
                f"state; restore that line, or set {key} anew"
            )
        self._crypter = self._crypter or Crypter(passphrase(), self._salt)
        try:
            return self._crypter.decrypt(ciphertext)
        except EngineError:
            raise EngineError(
                f"{self._file}: {key} cannot be decrypted: it was changed, or made with another "
                "encryptionsalt or passphrase; restore the one it was made with, or set it anew"
            ) from None


def _plain(file: str, key: str, value: Any, decrypt: Callable[[str], str]) -> Any:
    """A value of YAML as JSON has it, as the pulumi CLI turns the one into the other."""
    if isinstance(value, dict):
        if set(value) == {"secure"} and isinstance(value["secure"], str):
            return decrypt(value["secure"])
        return {
            name if isinstance(name, str) else json.dumps(_plain(file, key, name, decrypt)): _plain(
                file, key, item, decrypt
            )
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(file, key, item, decrypt) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise EngineError(
        f"{file}: {key} holds a {type(value).__name__}, which JSON cannot hold; write it as text"
    )


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and name not in NOT_NAMES and bool(NAME.fullmatch(name))


def _mapping(document: dict[str, Any], part: str, file: str) -> dict[str, Any]:
    """A part of a document; an empty mapping where there is none."""
    found = document.get(part) or {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise EngineError(f"{file}: {part} must be a mapping with texts as keys")
    return found


def _typed(declared: Any) -> bool:
    return isinstance(declared, dict) and bool({"type", "default", "value"} & set(declared))


def _declares_secret(declared: Any) -> bool:
    return _typed(declared) and bool(declared.get("secret"))


def _check_type(file: str, key: str, value: Any, declared: Any) -> None:
    expected = declared.get("type") if _typed(declared) else None
    if expected not in CONFIG_TYPES or value is None:
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


class _Loader(yaml.SafeLoader):
    """Safe YAML with times as the texts that the CLI makes of them."""


def _time(_: _Loader, node: yaml.ScalarNode) -> str:
    if not GO_TIME.fullmatch(node.value):
        return str(node.value)
    try:
        # Only these forms are times to the CLI, and programs get them as Go prints them.
        time = datetime.fromisoformat(node.value.upper())
    except ValueError:
        return str(node.value)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    fraction = f".{time:%f}".rstrip("0").rstrip(".")
    zone = f"{time:%z}"
    return f"{time:%Y-%m-%d %H:%M:%S}{fraction} {zone} {zone if time.utcoffset() else 'UTC'}"


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _time)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(), _Loader) or {}  # noqa: S506 - a safe one
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EngineError(f"{path.name} is not valid YAML: {error}") from None
    if not isinstance(document, dict):
        raise EngineError(f"{path.name} must hold a mapping, not {type(document).__name__}")
    return document
