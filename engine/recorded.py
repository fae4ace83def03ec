"""Providers of dynamic resources as states record them, and which of them are trusted.

The SDK pickles a provider into the property `__provider`, and unpickling runs its content. Others
may be able to write to the state. So nothing that a state has in the clear is unpickled: only the
name of a class is read there, and the class taken from the program's own modules. A provider that
was pickled by value comes from the program itself or from a ciphertext of the stack's passphrase.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.values import Properties, is_secret, reveal

if TYPE_CHECKING:
    from pulumi.dynamic import ResourceProvider

PROVIDER_KEY = "__provider"
# A pickle of an object without attributes: its class by module and name, and nothing else.
NAMED = re.compile(
    rb"\x80[\x04\x05]\x95.{8}\x8c.([A-Za-z_][\w.]*)\x94\x8c.(\w+)\x94\x93\x94\)\x81\x94\.",
    re.DOTALL,
)
# Packages of Trainyard, wherever it is installed; a program's other modules are next to it.
PACKAGES = ("cluster", "infra")
INSTALLED = Path(__file__).parents[1]
ACTION = "restore a copy of the state (docs/engine.md)"


def named(pickled: Any) -> tuple[str, str] | None:
    """Module and class of a recorded provider, None if more than these two is recorded."""
    try:
        found = NAMED.fullmatch(base64.b64decode(pickled, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return None
    return (found[1].decode(), found[2].decode()) if found else None


def is_believable(properties: Any) -> bool:
    """Whether a provider among properties of a state, if any, may be used."""
    if PROVIDER_KEY not in (properties or {}):
        return True
    pickled = properties[PROVIDER_KEY]
    return is_secret(pickled) or named(pickled) is not None


class Recorded:
    """Trusted providers of a program, whose folder is `main`, in the project's folder `root`."""

    def __init__(self, main: Path, root: Path) -> None:
        self._main = main
        self._root = root
        self._trusted: set[str] = set()

    def trust(self, properties: Properties) -> None:
        """Trust the provider among properties, if it is a secret.

        They are from the program, or from a state whose ciphertexts were decrypted.
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
        if isinstance(pickled, str) and not self._is_ours(named(pickled)):
            raise EngineError(
                "its provider is recorded in the clear, and is not a class of the program's "
                "modules without attributes: leave serialize_as_secret_always as it is"
            )

    def load(self, pickled: str) -> ResourceProvider:
        """The provider that was recorded in this form.

        Raises:
            EngineError: it is not trusted, or the program no longer has it.
        """
        import dill  # noqa: PLC0415 (slow, and reading a state needs neither)
        from pulumi.dynamic import ResourceProvider  # noqa: PLC0415

        names = named(pickled)
        try:
            if names is not None and self._is_ours(names):
                found = getattr(importlib.import_module(names[0]), names[1])
                if isinstance(found, type) and issubclass(found, ResourceProvider):
                    return found.__new__(found)
            elif pickled in self._trusted:
                loaded: ResourceProvider = dill.loads(base64.b64decode(pickled))  # noqa: S301 ours
                return loaded
        except (ImportError, AttributeError) as error:
            raise EngineError(
                f"a provider recorded in the state cannot be loaded ({error}); check out "
                "the version of the program that made this stack"
            ) from None
        what = f"the provider {'.'.join(names)}" if names else "a provider"
        raise EngineError(
            f"the state records {what}, which is neither of this program's modules nor a secret of "
            f"this stack, so it was not run; {ACTION}, or check out the version of the program "
            "that made this stack"
        )

    def _is_ours(self, names: tuple[str, str] | None) -> bool:
        if names is None:
            return False
        parts = names[0].split(".")
        if not all(part.isidentifier() and part != "__main__" for part in parts):
            return False
        folders = [self._main, *((self._root, INSTALLED) if parts[0] in PACKAGES else ())]
        places = [folder.joinpath(*parts) for folder in folders]
        return any(
            place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py").is_file()
            for place in places
        )
