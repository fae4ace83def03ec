"""Providers of dynamic resources as states record them, and which of them are trusted.

The SDK pickles a provider into the property `__provider`, and unpickling runs its content. Others
may be able to write to the state. So nothing that a state has in the clear is unpickled: only the
name of a class is read there, perhaps with a text that the class is called with, and the class
taken from the program's own modules. A provider that was pickled by value comes from the program
itself or from a ciphertext of the stack's passphrase.
"""

import base64
import binascii
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import EngineError
from engine.values import Properties, is_secret, reveal

if TYPE_CHECKING:
    from pulumi.dynamic import ResourceProvider

PROVIDER_KEY = "__provider"
# A pickle of an object without attributes, or of a class's call with one text.
NAMED = re.compile(
    rb"\x80[\x04\x05]\x95.{8}\x8c.([A-Za-z_][\w.]*)\x94\x8c.(\w+)\x94\x93\x94"
    rb"(?:\)\x81|\x8c.([\w:]+)\x94\x85\x94R)\x94\.",
    re.DOTALL,
)
# Packages of Trainyard, wherever it is installed; a program's other modules are next to it.
PACKAGES = ("cluster", "infra")
# Trainyard's providers are recorded by a call of this class with their kind, which is their type's.
LOADER = ("cluster.provider_kinds", "Recorded")
KIND = re.compile(r"pulumi-python:dynamic/(\w{1,99}:\w{1,99})")
INSTALLED = Path(__file__).parents[1]
ACTION = "restore a copy of the state (docs/engine.md)"


class Named(NamedTuple):
    """A provider that is recorded by name: its class, and the kind that this is called with."""

    module: str
    name: str
    kind: str


def names_in(pickled: Any) -> Named | None:
    """The names in a recorded provider, None if more than these is recorded."""
    try:
        found = NAMED.fullmatch(base64.b64decode(pickled, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return None
    return Named(*(part.decode() for part in found.groups(b""))) if found else None


def name_kind(entry: Any) -> bool:
    """Record an entry's provider by its kind, where a state still has its module and class.

    Returns:
        Whether that changed the entry.
    """
    kind, changed = KIND.fullmatch(str(entry.get("type"))), False
    for properties in (entry.get("inputs"), entry.get("outputs")):
        names = names_in(properties.get(PROVIDER_KEY)) if isinstance(properties, dict) else None
        if kind and names and not names.kind and names.module.partition(".")[0] in PACKAGES:
            properties[PROVIDER_KEY] = of_kind(kind[1])
            changed = True
    return changed


def of_kind(kind: str) -> str:
    """A provider of this kind, as the SDK records it."""
    module, name, text = (
        b"\x8c" + bytes([len(part)]) + part.encode() + b"\x94" for part in (*LOADER, kind)
    )
    call = module + name + b"\x93\x94" + text + b"\x85\x94R\x94."
    return base64.b64encode(b"\x80\x04\x95" + len(call).to_bytes(8, "little") + call).decode()


def is_believable(properties: Any) -> bool:
    """Whether a provider among properties of a state, if any, may be used."""
    if PROVIDER_KEY not in (properties or {}):
        return True
    pickled = properties[PROVIDER_KEY]
    return is_secret(pickled) or names_in(pickled) is not None


class TrustedProviders:
    """Trusted providers of a program, whose folder is `main`, in the project's folder `root`."""

    def __init__(self, main: Path, root: Path) -> None:
        self._main = main
        self._root = root
        self._trusted: set[str] = set()

    def trust(self, properties: Properties) -> None:
        """Trust the provider among properties, if it is a secret.

        They come from the program, or from a state whose ciphertexts were decrypted.
        """
        if is_secret(pickled := properties.get(PROVIDER_KEY)):
            self._trusted.add(reveal(pickled))

    def registered(self, properties: Properties) -> None:
        """Trust the provider that the program gives, if the next operation would, too.

        Raises:
            EngineError: it is not a secret, and not just the name of a class of the program.
        """
        self.trust(properties)
        pickled = properties.get(PROVIDER_KEY)
        if isinstance(pickled, str) and not self._is_ours(names_in(pickled)):
            raise EngineError(
                "its provider is recorded in the clear, and is not a class of the program's "
                "modules without attributes: leave serialize_as_secret_always as it is"
            )

    def load(self, pickled: str) -> "ResourceProvider":
        """The provider that was recorded in this form.

        Raises:
            EngineError: it is not trusted, or the program no longer has it.
        """
        import dill  # noqa: PLC0415 (slow, and reading a state needs neither)
        from pulumi.dynamic import ResourceProvider  # noqa: PLC0415

        names = names_in(pickled)
        try:
            if names is not None and self._is_ours(names):
                found = getattr(importlib.import_module(names.module), names.name)
                if isinstance(found, type) and issubclass(found, ResourceProvider):
                    return found.__new__(found, *filter(None, [names.kind]))
            elif pickled in self._trusted:
                loaded: ResourceProvider = dill.loads(base64.b64decode(pickled))  # noqa: S301 ours
                return loaded
        except (ImportError, AttributeError, LookupError, TypeError) as error:
            raise EngineError(
                f"a provider recorded in the state cannot be loaded ({error}); check out "
                "the version of the program that made this stack"
            ) from None
        what = f"the provider {names.module}.{names.name}" if names else "a provider"
        raise EngineError(
            f"the state records {what}, which is neither of this program's modules nor a secret of "
            f"this stack, so it was not run; {ACTION}, or check out the version of the program "
            "that made this stack"
        )

    def _is_ours(self, names: Named | None) -> bool:
        if names is None:
            return False
        parts = names.module.split(".")
        if not all(part.isidentifier() and part != "__main__" for part in parts):
            return False
        folders = [self._main, *((self._root, INSTALLED) if parts[0] in PACKAGES else ())]
        places = [folder.joinpath(*parts) for folder in folders]
        return any(
            place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py").is_file()
            for place in places
        )
