"""Writes docs/course_diffs.md, the differences between the Food-11 scripts.

python -m tests.course_page
"""

import difflib
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "course_diffs.md"
SCRIPTS = Path("training/food11")
ORDER = ("train_lightning.py", "train_ray.py", "train_fault_tolerant.py", "train_tune.py")
NEW = {
    "train_ray.py": "New: Ray's strategy, plugin and callback for Lightning's trainer, and a "
    "driver with a `TorchTrainer`. The driver\nneeds no Lightning: the imports move to the "
    "workers' function.",
    "train_fault_tolerant.py": "New: `FailureConfig`, `get_checkpoint`, and a callback "
    "whose checkpoints are checked before a run resumes from\nthem. `storage_filesystem` keeps the "
    "list of checkpoints, which Ray's controller would store, in memory: only the\nworker has to "
    "reach the store, and it waits for one that is away.",
    "train_tune.py": "New: a `Tuner` with an `ASHAScheduler`. Tune no longer accepts a "
    "`TorchTrainer`: a trial is one process, without the\nparts that join workers.",
}


def page() -> str:
    return (
        "# The course's scripts, step by step\n"
        "This page is for readers of the [course](course.md): it shows what each of its scripts "
        "adds to the previous one.\n"
        "`make docs` writes it.\n"
        "`git diff --no-index training/food11/A.py training/food11/B.py` shows the same, with the "
        "docstrings.\n"
    ) + "".join(_section(old, new) for old, new in pairwise(ORDER))


def _section(old: str, new: str) -> str:
    before, after = (_code(name) for name in (old, new))
    diff = "".join(difflib.unified_diff(before, after, old, new, n=1))
    return f"\n## From {old} to {new}\n{NEW[new]}\n\n```diff\n{diff}```\n"


def _code(name: str) -> list[str]:
    """Return the lines of a script after its docstring."""
    _, _, code = (ROOT / SCRIPTS / name).read_text().split('"""', 2)
    return code.splitlines(keepends=True)


if __name__ == "__main__":
    PAGE.write_text(page())
