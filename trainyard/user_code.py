"""A user's script in a process of a node, loaded as Python loads it in a process that it spawns.

There it is `__main__`, and is not started: so its classes can be pickled, processes that it spawns
find it, and `__main__.X` names what it defines. This module needs no Ray.
"""

import ast
import importlib
import os
import sys
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType


def load_script(script: str) -> ModuleType:
    """Runs a script's definitions, once in a process, and makes it `__main__`.

    The script is named as after `python` or `python -m`: by the path of a .py file, or as a module.
    """
    if script.endswith(".py"):
        # Ray puts the working folder into the path, but runs elsewhere.
        places = [Path(place, script) for place in ("", *sys.path)]
        path = next((place for place in places if place.is_file()), places[0]).resolve()
        sys.path.insert(0, str(path.parent))  # as for a script
        spawn.prepare({"init_main_from_path": str(path)})
    elif script.endswith(".__main__"):  # of `python -m PACKAGE`, which multiprocessing leaves out
        return importlib.import_module(script)
    else:
        spawn.prepare({"init_main_from_name": script})
    main = sys.modules["__main__"]
    for pickler in {"cloudpickle", "ray.cloudpickle"} & sys.modules.keys():
        sys.modules[pickler].register_pickle_by_value(main)  # it is another module elsewhere
    return main


def name_of_main() -> str:
    """Return the name by which `load_script` finds this process's script on another node."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name
    return os.path.relpath(getattr(main, "__file__", None) or ".")


def is_defined(function: str) -> bool:
    """Return whether loading this process's script again defines a function, and starts nothing.

    The script needs the function at its top level, and what it does below `if __name__`.
    """
    try:
        tree = ast.parse(Path(getattr(sys.modules["__main__"], "__file__", "")).read_bytes())
    except (OSError, TypeError, ValueError, SyntaxError):  # a notebook, a console
        return False
    defined = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    guards = [ast.unparse(each.test) for each in tree.body if isinstance(each, ast.If)]
    return function in defined and any("__name__" in each for each in guards)
