"""From the JOB of a command line to a script: what runs it, and what its workers ask for."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from training.client.errors import ClientError
from training.client.feasibility import Bundle

PACKAGE = Path(__file__).resolve().parents[1]
JOBS = PACKAGE / "jobs"


@dataclass(frozen=True)
class Script:
    """A job's script.

    Attributes:
        name: names its runs.
        path: the file.
        command: starts it on the cluster.
        working_dir: folder or address to upload, None for none.
        module: the package to upload beside it, None for none.
    """

    name: str
    path: Path
    command: tuple[str, ...]
    working_dir: str | None
    module: Path | None


def find(job: str, working_dir: str | None = None) -> Script:
    """Finds a job's script.

    Args:
        job: a name of training/jobs, or the path of a .py file.
        working_dir: the folder to upload; without one that of a script given by path.

    Raises:
        ClientError: no such job or file.
    """
    if job not in names() and (job.endswith(".py") or "/" in job):
        path = Path(job).resolve()
        if not path.is_file():
            raise ClientError(f"job script {job} is not a file; {_known()}")
        if JOBS not in path.parents:
            return _own(path, working_dir)
        job = path.relative_to(JOBS).with_suffix("").as_posix()
    if job not in names():
        close = difflib.get_close_matches(job, names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ClientError(f"no job is called {job[:80]!r}; {hint}{_known()}")
    command = ("python", "-m", f"training.jobs.{job.replace('/', '.')}")
    return Script(job.replace("/", "-"), JOBS / f"{job}.py", command, working_dir, PACKAGE)


def names() -> list[str]:
    """Names of the jobs in training/jobs; those in a folder as `folder/name`."""
    paths = (path.relative_to(JOBS).with_suffix("") for path in JOBS.rglob("*.py"))
    return sorted(path.as_posix() for path in paths if not path.name.startswith("_"))


def demand(script: Script, arguments: Sequence[str]) -> list[Bundle]:
    """Asks a script what its workers need; it parses its arguments on the way.

    Returns:
        One bundle per worker, none when the script does not say.

    Raises:
        ClientError: the script cannot be read or asked.
        SystemExit: the script refused its arguments, and has said why.
    """
    try:
        tree = ast.parse(script.path.read_bytes())
    except SyntaxError as error:
        raise ClientError(
            f"{script.path}, line {error.lineno}: {error.msg}; mend it, then submit again"
        ) from None
    # Only a script that offers the function is run here: others may do their work on import.
    if not any(isinstance(n, ast.FunctionDef) and n.name == "resources" for n in tree.body):
        return []
    try:
        return [dict(bundle) for bundle in _load(script).resources(list(arguments))]
    except Exception as error:
        raise ClientError(
            f"{script.path}: resources({list(arguments)}) failed: {error!r}; "
            "it must import only what this machine has, and return one dict per worker"
        ) from error


def _load(script: Script) -> ModuleType:
    if script.module is not None:
        return importlib.import_module(script.command[-1])
    spec = importlib.util.spec_from_file_location(script.name, script.path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script.path} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(script.path.parent))
    spec.loader.exec_module(module)
    return module


def _own(path: Path, working_dir: str | None) -> Script:
    folder = path.parent if working_dir is None else Path(working_dir).resolve()
    if working_dir is not None and "://" in working_dir:
        raise ClientError(
            f"working directory {working_dir} is an address and {path.name} a file of this "
            "machine: give the folder that holds the script"
        )
    if folder not in path.parents:
        raise ClientError(
            f"{path} is not in the working directory {folder}: give a folder that holds the script"
        )
    command = ("python", path.relative_to(folder).as_posix())
    return Script(path.stem, path, command, str(folder), None)


def _known() -> str:
    return f"jobs are {', '.join(names())}, or the path of a .py file"
