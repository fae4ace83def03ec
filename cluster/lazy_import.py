"""Imports a module at its first use, in one thread at a time.

Providers work in threads, and modules that only a create or a refresh needs are not imported
before: they would slow down an `up` that changes nothing. Two threads must not import at once: if
the modules of a package import each other, as `minio`'s do, one thread finds the other's half-made
module.
"""

import importlib
import threading
from types import ModuleType

_ONE_AT_A_TIME = threading.RLock()


def module(name: str) -> ModuleType:
    """Return a module by its whole name, importing it if needed."""
    with _ONE_AT_A_TIME:
        return importlib.import_module(name)
