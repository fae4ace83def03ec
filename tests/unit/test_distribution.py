"""The name `trainyard` on package indexes is somebody else's: nothing here installs it by name."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ran

ROOT = Path(__file__).parents[2]
INSTALLER = re.compile(r"\b(pip3?|pipx|uvx?|pipenv|poetry|pdm|conda|mamba|micromamba)\b")
# A requirement of that name: with extras, a version or a marker, in quotes, or alone.
STRANGER = re.compile(r"""["'`]?trainyard(\[[\w, -]*\])?(\s*[=<>~!;@].*)?["'`),.;]*""")
# Lines of these files are requirements.
LISTS = re.compile(
    r"(^|/)(requirements[\w/.-]*\.(in|txt)|Pipfile|(environment|runtime)[\w/.-]*\.ya?ml)$"
)
ITEM = re.compile(r"""^\s*(-\s+|["'])?(trainyard(\[[\w, -]*\])?\s*([=<>~!;@].*|["'],?)?)\s*$""")


def _tracked() -> Iterator[Path]:
    done = ran.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    if done.returncode != 0:
        pytest.skip("no git checkout")
    for name in done.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and path != Path(__file__) and path.suffix not in {".png", ".svg"}:
            yield path


def strangers(name: str, text: str) -> list[str]:
    """The lines of a file that would install the distribution of that name."""
    found = []
    for line in text.splitlines():
        command = INSTALLER.search(line)
        if command is not None:
            try:
                words = shlex.split(line[command.start() :], comments=True)
            except ValueError:  # quotes of the surrounding code
                words = line[command.start() :].split()
            verbs = {"install", "add", "require", "run", "tool", "download", "wheel", "--with"}
            if verbs & {word.strip("`\"',") for word in words} and any(
                STRANGER.fullmatch(word) for word in words
            ):
                found.append(line)
        elif LISTS.search(name) and ITEM.match(line):
            found.append(line)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "pip install trainyard",
        "python -m pip install -U 'trainyard[jobs]'",
        '"run `pip install trainyard` first"',
        "RUN uv pip install --system trainyard==0.1.0",
        "uv add trainyard",
        "uvx trainyard && uv tool install trainyard",
        "%pip install trainyard",
    ],
)
def test_a_command_that_installs_a_stranger_is_found(line):
    assert strangers("docs/x.md", line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "pip install trainyard-ray",
        "pip install 'trainyard-ray[jobs]'",
        "pip install git+https://example.org/your/copy/of/trainyard",
        "pip install .  # which has trainyard and hydra_plugins",
    ],
)
def test_ours_is_not_a_stranger(line):
    assert strangers("docs/x.md", line) == []


@pytest.mark.parametrize(
    "line", ["trainyard", "  - trainyard[jobs]", "trainyard>=0.1", "'trainyard'"]
)
def test_a_line_of_a_list_is_found(line):
    assert strangers("requirements/conda/environment_cpu.yaml", line) == [line]
    assert strangers("docs/page.md", line) == []


def test_nothing_here_installs_a_stranger():
    found = {
        str(path.relative_to(ROOT)): lines
        for path in _tracked()
        if (lines := strangers(str(path.relative_to(ROOT)), path.read_text(errors="replace")))
    }
    assert found == {}
