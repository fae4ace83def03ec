"""A user's script in a process of a node, as Python loads it in a process that it spawns.

The script is the process's `__main__` without being started: its classes can be pickled, processes
that it spawns find it, and `__main__.X` names what it defines. It needs no Ray.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from importlib.abc import InspectLoader
from pathlib import Path
from types import ModuleType

NAME = "__mp_main__"  # multiprocessing's: `if __name__ == "__main__"` is false in it
PICKLERS = ("cloudpickle", "ray.cloudpickle")


@functools.cache
def load_script(script: str) -> ModuleType:
    """Runs a script's definitions, once in a process, and makes it `__main__`.

    Args:
        script: as after `python` or `python -m`: the path of a .py file, or a module. A relative
            path begins in the working folder, or in a folder of Python's path.

    Raises:
        ImportError: there is no such script.
    """
    if script.endswith(".py"):
        # Ray puts the working folder into the path, but runs elsewhere.
        places = [Path(place, script) for place in ("", *sys.path)]
        path = next((place for place in places if place.is_file()), places[0]).resolve()
        sys.path.insert(0, str(path.parent))  # as for a script
        spec = importlib.util.spec_from_file_location(path.stem, path)
    else:
        spec = importlib.util.find_spec(script)
        if spec is not None and spec.submodule_search_locations is not None:  # a package
            spec = importlib.util.find_spec(f"{script}.__main__")
    if spec is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(f"{script} is not a Python source file or module")
    module = importlib.util.module_from_spec(spec)
    module.__name__ = NAME
    if script.endswith(".py"):
        module.__spec__, module.__package__ = None, ""  # so spawned processes run the file
    sys.modules["__main__"] = sys.modules[NAME] = module
    exec(spec.loader.get_code(spec.name) or "", vars(module))  # noqa: S102 - the user's own
    for pickler in PICKLERS:
        if pickler in sys.modules:  # other processes have another module of this name
            sys.modules[pickler].register_pickle_by_value(module)
    return module


def name_of_main() -> str:
    """Return the name by which `load_script` finds this process's script on another node.

    Raises:
        ValueError: this process has no script, as in a notebook.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name
    if main.__file__ is None:
        raise ValueError("this process runs no script: put the code into a .py file and run that")
    return os.path.relpath(main.__file__)
