"""Modules that are imported when they are first needed, by one thread at a time.

Providers work in threads, and what only a create or a refresh needs is not imported before: it
would slow an `up` that changes nothing. Two threads must not do so at once: where the modules of a
package import each other, as those of `minio` do, one thread finds the other's half-made module.
"""

import importlib
import threading
from types import ModuleType

_ONE_AT_A_TIME = threading.RLock()


def module(name: str) -> ModuleType:
    """Return a module, imported now if nobody did so before.

    Args:
        name: with its packages, such as cluster.s3_calls.
    """
    with _ONE_AT_A_TIME:
        return importlib.import_module(name)
