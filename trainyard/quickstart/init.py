"""`train init`: writes a project that trains unchanged, in the user's own repository."""

import sys
from pathlib import Path

from trainyard.client.errors import ClientError
from trainyard.client.scripts import TEMPLATE

FILES = Path(__file__).resolve().parent / "project"
JOB = "digits"
SETUP = Path("box", "setup_ubuntu.sh")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"  # of Python; Ray needs the same there
NEXT = (
    (f"train submit jobs/{JOB}.py --runtime-env runtime_env.yaml", "train on a stack that is up"),
    ("python src/train_chargpt.py", "train on the box of config/ray_config.yaml"),
    ("python src/train_chargpt.py --stack dev", "train the same on a stack that is up"),
)


def write(folder: Path) -> list[Path]:
    """Writes all files of the project, or none; returns them relative to the folder.

    Raises:
        ClientError: a file is there already, or cannot be written.
    """
    content = _content()
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


def _content() -> dict[Path, str]:
    texts = {
        path.relative_to(FILES): path.read_text(encoding="utf-8")
        for path in sorted(FILES.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    texts[SETUP] = texts[SETUP].replace("minor=3.11", f"minor={MINOR}", 1)
    job = TEMPLATE.read_text(encoding="utf-8")
    place = Path("jobs", f"{JOB}.py")
    texts[place] = job.replace("train submit JOB", f"train submit {place}").replace(
        '"JOB"', f'"{JOB}"'
    )
    return texts
