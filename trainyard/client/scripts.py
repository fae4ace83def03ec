"""From the JOB of a command line to a script: its command, and the values of its arguments."""

import ast
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trainyard
from trainyard import options
from trainyard.client import script_parser
from trainyard.client.console import say
from trainyard.client.errors import ClientError, guess

HELP = "--help"
PACKAGE = Path(trainyard.__file__).resolve().parent
JOBS_PACKAGE = "jobs"
JOBS = (PACKAGE / JOBS_PACKAGE).resolve()  # in a checkout a link to training/
TEMPLATE = JOBS / "_template.py"  # of a user's first job
# Modules of this package that connect to Ray; the others compute in their own process.
DRIVERS = {f"{PACKAGE.name}.{each}" for each in ("job", "search.recorded", "ray_train")}


@dataclass(frozen=True)
class Script:
    """A job's script."""

    name: str  # names its runs
    path: Path  # the file
    command: tuple[str, ...]  # starts it on the cluster
    working_dir: str | None  # folder or address to upload, None for none
    module: Path | None  # the package to upload with it, None for none

    @property
    def job(self) -> str:
        """Its name on a command line."""
        if JOBS in self.path.parents:
            return self.path.relative_to(JOBS).with_suffix("").as_posix()
        return str(self.path)


def find(job: str, working_dir: str | None = None) -> Script:
    """Finds a job's script.

    Args:
        job: a name of training/, or the path of a .py file.
        working_dir: the folder to upload; by default that of a script given by path.

    Raises:
        ClientError: no such job or file.
    """
    if job not in names() and (job.endswith(".py") or "/" in job):
        path = Path(job).resolve()
        if not path.is_file():
            raise ClientError(f"job script {job} is not a file; {_known()}")
        if JOBS not in path.parents:
            return _own(Path(job), working_dir)
        job = path.relative_to(JOBS).with_suffix("").as_posix()
    if job not in names():
        raise ClientError(f"no job is called {job[:80]!r}; {guess(job, names())}{_known()}")
    command = ("python", "-m", f"trainyard.jobs.{job.replace('/', '.')}")
    return Script(job.replace("/", "-"), JOBS / f"{job}.py", command, working_dir, PACKAGE)


def names() -> list[str]:
    """Names of the jobs in training/; those in a folder as `folder/name`."""
    paths = (path.relative_to(JOBS).with_suffix("") for path in JOBS.rglob("*.py"))
    return sorted(path.as_posix() for path in paths if not path.name.startswith("_"))


def config(script: Script, arguments: Sequence[str]) -> options.Config:
    """Reads the values of a script's arguments, and checks them on the way.

    Both follow from its argparse calls, which are read and not run.

    Returns:
        The values, from which the request of its workers follows (`options.request`); none when the
        script does not say, or starts no workers.

    Raises:
        ClientError: the script is not Python.
        SystemExit: the arguments are refused, and the reason is printed; or they ask for help,
            which is printed without a stack, also for a script that reads its arguments itself.
    """
    try:
        parser = script_parser.read(script.path.read_bytes(), f"train submit {script.job} --")
    except (SyntaxError, ValueError) as error:  # until Python 3.11.3 a null is a ValueError
        line = f", line {number}" if (number := getattr(error, "lineno", 0)) else ""
        reason = getattr(error, "msg", error)
        raise ClientError(f"{script.path}{line}: {reason}; mend it, then submit again") from None
    if parser is None and HELP in arguments:
        say(ast.get_docstring(ast.parse(script.path.read_bytes())) or "")
        where = f"in {script.working_dir}, " if script.working_dir else ""
        say(f"{script.job} reads its arguments itself: {where}`{' '.join(script.command)} {HELP}`")
        sys.exit(0)
    values = options.parse(parser, arguments) if parser else {}
    return values if is_driver(script) else {}


def is_driver(script: Script) -> bool:
    """Return whether a script uses the cluster itself: it imports Ray, or what it imports does.

    All other scripts are plain programs, which compute where they are started.
    """
    return _imports_one(script, lambda name: name in DRIVERS or _top(name) == "ray")


def resumes(script: Script) -> bool:
    """Return whether a script is started again from its checkpoints: it uses our library's job."""
    return _imports_one(script, DRIVERS.__contains__)


def _imports_one(script: Script, wanted: Callable[[str], bool]) -> bool:
    """Whether a script, modules next to it or our jobs that it imports, import what is wanted."""
    places = [script.path.parent, Path(script.working_dir or script.path.parent)]
    seen: set[Path] = set()
    pending = {script.path}
    while pending:
        path = pending.pop()
        seen.add(path)
        for name in _imports(path):
            if wanted(name):
                return True
            own = name.lstrip(".")
            level = len(name) - len(own)
            roots = places
            if _top(name) == PACKAGE.name:  # of this package only a job may start workers for it
                if not name.startswith(f"{PACKAGE.name}.{JOBS_PACKAGE}."):
                    continue
                roots = [PACKAGE.parent]
            for place in path.parents[level - 1 : level] if level else roots:
                file = place / own.replace(".", "/")
                found = {file.with_name(f"{file.name}.py"), file / "__init__.py"}
                pending |= {each for each in found - seen if each.is_file()}
    return False


def _own(given: Path, working_dir: str | None) -> Script:
    folder = given.resolve().parent if working_dir is None else Path(working_dir).resolve()
    if working_dir is not None and "://" in working_dir:
        raise ClientError(
            f"working directory {working_dir} is an address and {given.name} a file of this "
            "machine: give the folder that holds the script"
        )
    # A link is uploaded with its target's content, so its own place counts too.
    as_typed = Path(os.path.abspath(given))  # noqa: PTH100 - `resolve` follows links
    places = (given.resolve(), given.parent.resolve() / given.name, as_typed)
    if (path := next((each for each in places if folder in each.parents), None)) is None:
        raise ClientError(
            f"{places[0]} is not in the working directory {folder}: give a folder that holds the "
            "script"
        )
    command = ("python", path.relative_to(folder).as_posix())
    # Nodes lack this package, which records the run. An uploaded module of its name would hide it.
    hidden = any(own_module(each) is not None for each in (folder, path.parent))
    return Script(path.stem, path, command, str(folder), None if hidden else PACKAGE)


def own_module(folder: Path) -> Path | None:
    """A folder's own module of the name of this package; None without one."""
    named = (folder / PACKAGE.name, folder / f"{PACKAGE.name}.py")
    return next((path for path in named if path.exists()), None)


def _imports(path: Path) -> set[str]:
    """Return the modules that a script imports; relative ones begin with their dots."""
    names: set[str] = set()
    with suppress(SyntaxError, ValueError):  # `config` says so
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                dot = "." if node.module else ""
                names |= {module, *(f"{module}{dot}{each.name}" for each in node.names)}
    return names


def _top(module: str) -> str:
    return module.partition(".")[0]


def _known() -> str:
    return f"jobs are {', '.join(names())}, or the path of a .py file"
