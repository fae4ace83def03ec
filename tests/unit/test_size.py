"""The house keeps its size: a change that makes it larger says so here, and why in its commit."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ran

ROOT = Path(__file__).parents[2]
# Lines of Python, with comments and blank lines. The product is all but tests and benchmarks.
LIMITS = {"product": 75_600, "tests": 84_938}
SLACK = 200  # a gain that is larger is kept by a lower number
NOT_OURS = ("build", "out")  # results, as in .gitignore; so is what begins with a dot


def lines(top: Path, left_out: tuple[str, ...] = ()) -> int:
    """Count lines of Python in a folder, without links and without some folders below it.

    A user's own script is not ours: the files are those that git has, or all where git has none.
    """

    def ours(name: str) -> bool:
        return not name.startswith(".") and name not in left_out

    def all_files() -> Iterator[Path]:
        for folder, names, files in os.walk(top):
            names[:] = filter(ours, names)
            yield from (Path(folder, name) for name in files if name.endswith(".py"))

    listed = ""
    if shutil.which("git"):
        listed = ran.run(["git", "ls-files", "-z", "*.py"], cwd=top).stdout
    known = (Path(name) for name in listed.split("\0") if name)
    found = [top / path for path in known if all(map(ours, path.parent.parts))]
    return sum(
        len(path.read_bytes().splitlines())
        for path in (found if listed else all_files())
        if path.is_file() and not path.is_symlink()
    )


def advice(what: str, found: int, limit: int) -> str:
    """Say what to do about a number of lines; empty if it is as it should be."""
    if found > limit:
        return (
            f"{found} lines of {what}, {found - limit} more than LIMITS in {__file__} allows: "
            f"lower something, or raise the number to {found} in the same commit and say why"
        )
    if found < limit - SLACK:
        return f"{found} lines of {what}: lower the number in {__file__} from {limit} to {found}"
    return ""


@pytest.mark.parametrize("what", LIMITS)
def test_the_tree_is_as_large_as_its_number(what):
    tests = lines(ROOT / "tests")
    found = tests if what == "tests" else lines(ROOT, ("tests", "bench", *NOT_OURS))
    assert advice(what, found, LIMITS[what]) == ""


def test_a_larger_and_a_much_smaller_tree_are_told(tmp_path):
    for name in ("a/b.py", "a/.venv/c.py", "a/d.txt", "out/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n" * 10)
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "link.py").symlink_to(tmp_path / "a/b.py")
    assert lines(tmp_path, NOT_OURS) == 10
    ran.output(["git", "init", "--quiet"], cwd=tmp_path)
    assert lines(tmp_path, NOT_OURS) == 10
    ran.output(["git", "add", "."], cwd=tmp_path)
    (tmp_path / "a/script_of_a_user.py").write_text("1\n")
    assert lines(tmp_path, NOT_OURS) == 10
    (tmp_path / "a/b.py").unlink()
    assert lines(tmp_path, NOT_OURS) == 0
    assert advice("product", 1000, 1000) == advice("product", 1000 - SLACK, 1000) == ""
    assert "1 more than" in advice("product", 1001, 1000)
    assert "raise the number to 1001" in advice("product", 1001, 1000)
    assert advice("tests", 500, 1000).endswith("from 1000 to 500")
