"""The project and its stacks as Pulumi.yaml and Pulumi.<stack>.yaml describe them.

Only what the embedded engine needs: name, runtime and main of the project, the typed config block
with its defaults, and a stack's settings with secrets decrypted.
"""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from engine.crypto import Crypter
from engine.errors import EngineError, UnsupportedError
from engine.passphrase import passphrase
from trainyard.access import settings_file

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
NAME_RULE = "use 1 to 100 letters, digits, '-', '_' and '.', but not '.' or '..'"
NOT_NAMES = (".", "..")  # the CLI takes them, and writes next to the stack's own folders
OWN_PROVIDERS = ("", "default", "passphrase")
DECLARED = {"type", "default", "description", "secret", "items"}  # known keys of a declaration
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
    def find(cls, start: Path) -> "Project":
        """The project of a folder or of the nearest one above it.

        Raises:
            EngineError: none was found, or it cannot be run.
        """
        for folder in (start, *start.parents):
            path = folder / "Pulumi.yaml"
            if path.is_file():
                return cls._load(path)
        raise EngineError(f"no Pulumi.yaml in {start} or above it; use -C to name the project")

    @classmethod
    def _load(cls, path: Path) -> "Project":
        document = _read_yaml(path)
        runtime = document.get("runtime")
        language = runtime.get("name") if isinstance(runtime, dict) else runtime
        if language != "python":
            raise UnsupportedError(f"runtime {language!r}")
        name = document.get("name")
        if not _is_name(name):
            raise EngineError(f"{path}: the name {name!r} is not valid; {NAME_RULE}")
        config = _mapping(document, "config", path.name)
        for key, declared in config.items():
            if (
                not isinstance(declared, dict)
                or "type" not in declared
                or declared.keys() - DECLARED
            ):
                raise UnsupportedError(f"the declaration of {key} in {path.name}")
        return cls(
            root=path.parent,
            name=name,
            main=path.parent / str(document.get("main", ".")),
            schema={with_namespace(name, key): declared for key, declared in config.items()},
            backend_url=str(_mapping(document, "backend", path.name).get("url", "")),
        )


@dataclass(frozen=True, kw_only=True)
class StackSettings:
    """A stack's settings.

    Attributes:
        config: key with namespace to value; objects and lists as JSON text, as the SDK takes them.
        secret_keys: the keys of values that are or contain a secret.
        secrets: these values, and each that was encrypted alone.
        salt: the encryption salt of the settings file, "" when it has none.
    """

    config: dict[str, str]
    secret_keys: list[str]
    secrets: list[str]
    salt: str


def check_stack_name(stack: str) -> str:
    """The name, if a stack can have it.

    Raises:
        EngineError: a stack cannot.
    """
    if not _is_name(stack):
        raise EngineError(f"stack name {stack!r} is not valid; {NAME_RULE}")
    return stack


def read_settings(
    project: Project,
    stack: str,
    state_salt: str = "",
    *,
    phrase: str | None = None,
    hidden: str | None = None,
) -> StackSettings:
    """The stack's config over the schema's defaults.

    The salt of the stack's state is for secrets of a settings file that has none. The passphrase is
    (default: this user's); not needed with a text in place of each secret.

    Raises:
        EngineError: the file is not YAML, a value has the wrong type, or a secret cannot be read.
    """
    path = project.root / f"Pulumi.{stack}.yaml"
    document = _read_yaml(path) if path.is_file() else {}
    salt = salt_of_settings(path.name, document)

    @functools.cache  # the key takes a moment to make, and few settings are encrypted
    def crypter() -> Crypter:
        return Crypter(passphrase() if phrase is None else phrase, salt or state_salt)

    secret_keys = {key for key, declared in project.schema.items() if declared.get("secret")}
    opened: list[str] = []

    def decrypt(key: str, ciphertext: str) -> str:
        secret_keys.add(with_namespace(project.name, key))
        if hidden is not None:
            return hidden
        if not (salt or state_salt):
            raise EngineError(
                f"{path.name}: {key} is encrypted but encryptionsalt is missing, here and in the "
                f"state; restore that line, or set {key} again"
            )
        cipher = crypter()
        try:
            opened.append(cipher.decrypt(ciphertext))
        except EngineError:
            raise EngineError(
                f"{path.name}: {key} cannot be decrypted: it was changed, or made with another "
                "encryptionsalt or passphrase; restore the one it was made with, or set it again"
            ) from None
        return opened[-1]

    config: dict[str, str] = {}
    for key, given in _mapping(document, "config", path.name).items():
        full_key = with_namespace(project.name, key)
        value = as_json(path.name, key, given, decrypt)
        if full_key not in secret_keys:
            check_type(path.name, key, value, project.schema.get(full_key, {}).get("type"))
        config[full_key] = _as_text(value)
    for key, declared in project.schema.items():
        if key not in config and declared.get("default") is not None:
            config[key] = _as_text(as_json("Pulumi.yaml", key, declared["default"], decrypt))
    secrets = [*opened, *(config[key] for key in secret_keys if key in config)]
    return StackSettings(config=config, secret_keys=sorted(secret_keys), secrets=secrets, salt=salt)


def salt_of_settings(file: str, document: dict[str, Any]) -> str:
    """The encryption salt of a settings file, "" where it has none.

    Raises:
        UnsupportedError: its secrets are not encrypted with a passphrase.
    """
    if (provider := str(document.get("secretsprovider") or "")) not in OWN_PROVIDERS:
        raise UnsupportedError(f"the secrets provider {provider!r} of {file}")
    return str(document.get("encryptionsalt") or "")


def as_json(file: str, key: str, value: Any, decrypt: Callable[[str, str], str]) -> Any:
    """A value of YAML as JSON has it, as the pulumi CLI turns the one into the other."""
    if isinstance(value, dict):
        if set(value) == {"secure"} and isinstance(value["secure"], str):
            return decrypt(key, value["secure"])
        plain = {_as_text(as_json(file, key, k, decrypt)): v for k, v in value.items()}
        return {name: as_json(file, key, item, decrypt) for name, item in plain.items()}
    if isinstance(value, list):
        return [as_json(file, key, item, decrypt) for item in value]
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


def with_namespace(project: str, key: str) -> str:
    """The whole name of a setting: a name without a namespace is the project's own."""
    return key if ":" in key else f"{project}:{key}"


def check_type(file: str, key: str, value: Any, expected: str | None) -> None:
    """Compare a value with the type that Pulumi.yaml declares, None for any.

    Raises:
        EngineError: it has another type.
    """
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


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = settings_file.read(path) or {}
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from None
    except settings_file.SettingsError as error:
        raise EngineError(str(error)) from None
    if not isinstance(document, dict):
        raise EngineError(f"{path.name} must hold a mapping, not {type(document).__name__}")
    return document
