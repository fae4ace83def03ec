"""`train new`: a script to start your own job from."""

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.console import say
from trainyard.client.errors import ClientError, writing

NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")


def new(
    name: Annotated[str, typer.Argument(help="Name of the job, such as my_job.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Where to write it (default: training/ in the checkout, else here)."
        ),
    ] = None,
) -> None:
    """Write a job to start from; unchanged, it trains on handwritten digits."""
    path, command = write(name, folder)
    say(f"wrote {path}")
    say(f"submit it: {command}")


def write(name: str, folder: Path | None = None) -> tuple[Path, str]:
    """Writes a job that learns scikit-learn's digits, to be changed.

    Without a folder it goes to training/ in the checkout, else to the current folder.

    Returns:
        The file, and the command that submits it.

    Raises:
        ClientError: a bad name, an existing file, or a missing folder.
    """
    from trainyard.client import scripts

    if not NAME.fullmatch(name):
        raise ClientError(
            f"{name[:80]!r} is not 1 to 50 lower-case letters, digits or '_' beginning with a "
            "letter: choose another name"
        )
    if folder is None:
        folder = Path("training") if Path("trainyard", "jobs").is_dir() else Path()
    path = folder / f"{name}.py"
    if path.exists():
        raise ClientError(
            f"{path} is there already and is not overwritten: choose another name, or remove it"
        )
    if importlib.util.find_spec(name) is not None:
        raise ClientError(
            f"a Python module is called {name!r}, which the job would hide: choose another name"
        )
    # `train submit` finds jobs by name only in the checkout of this client.
    wanted = name if folder.resolve() == scripts.JOBS else shlex.quote(path.as_posix())
    text = scripts.TEMPLATE.read_text(encoding="utf-8")
    submitted = f"train submit {wanted} --name {name.replace('_', '-')}-1"
    text = text.replace("train submit JOB", f"train submit {wanted}").replace('"JOB"', f'"{name}"')
    with writing(path, "give a folder that is there with --folder"):
        path.write_text(text, encoding="utf-8")
    return path, submitted
