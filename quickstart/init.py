"""`train init`: a project that trains as it is, in the user's own repository."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from client.errors import ClientError
from client.new_job import TEMPLATE
from cluster import shipped

FILES = Path(__file__).resolve().parent / "project"
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
JOB = "digits"
SETUP = Path("box", "setup_ubuntu.sh")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"  # of Python; Ray needs the same there
SETTINGS = ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.hosts.yaml")
NEXT = (
    ("python -m engine.launch up -s dev", "bring a cluster up on this machine"),
    (f"train submit jobs/{JOB}.py --runtime-env runtime_env.yaml", "train on it"),
    ("python -m engine.launch destroy -s dev", "end it; results stay"),
    ("python src/train_digits.py", "train on the box of config/ray_config.yaml"),
)


def write(folder: Path) -> list[Path]:
    """Writes the project: all of its files, or none.

    Args:
        folder: the user's repository; created if missing. Its name is the project's.

    Returns:
        The files, relative to the folder.

    Raises:
        ClientError: a file is there already, or cannot be written.
    """
    content = _content(_name(folder))
    if taken := [str(path) for path in content if (folder / path).exists()]:
        raise ClientError(
            f"{folder} has {', '.join(taken)} already, and nothing is overwritten: move these "
            "files away, or choose another folder: train init FOLDER"
        )
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            (folder / path).unlink(missing_ok=True)
        raise ClientError(
            f"cannot write {error.filename or folder} ({error.strerror}), so nothing is written: "
            "choose a folder that you may write to: train init FOLDER"
        ) from None
    return list(content)


def _name(folder: Path) -> str:
    """The project's name: states and outputs have it."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name if NAME.fullmatch(name) else "training"


def _content(project: str) -> dict[Path, str]:
    texts = {
        path.relative_to(FILES): path.read_text(encoding="utf-8")
        for path in sorted(FILES.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    for name in SETTINGS:
        text = (shipped.FOLDER / name).read_text(encoding="utf-8")
        texts[Path(name)] = _own(text, project)
    texts[SETUP] = texts[SETUP].replace("minor=3.11", f"minor={MINOR}", 1)
    job = TEMPLATE.read_text(encoding="utf-8")
    place = Path("jobs", f"{JOB}.py")
    texts[place] = job.replace("train submit JOB", f"train submit {place}").replace(
        '"JOB"', f'"{JOB}"'
    )
    return texts


def _own(text: str, project: str) -> str:
    """The settings of this project for another one, whose program is in stack/."""
    text = re.sub(r"^name: .*$", f"name: {project}", text, count=1, flags=re.MULTILINE)
    # Any environment of the user's will do: the one whose `python` is on PATH.
    program = "main: stack/\nruntime: python\n"
    text = re.sub(r"^main: .*\nruntime:\n(?:  .*\n)+", program, text, count=1, flags=re.MULTILINE)
    text = re.sub(r"^# Each setting .*\n# table .*\n", "", text, count=1, flags=re.MULTILINE)
    return re.sub(r"\btrainyard:", f"{project}:", text)
