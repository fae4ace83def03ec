"""The blocks of README.md, CONTRIBUTING.md and docs/*.md, and ways to run their commands.

A shell block runs in its place: the checkout, unless an HTML comment before it says otherwise:

    <!-- run: docker -->                     another place of PLACES
    <!-- run until: session ready -->        ends with Ctrl-C, once it has printed these words
    <!-- run in docker until: ready -->      the same in another place
    <!-- read by: tests/…/test_sweep.py -->  a test that runs its commands with its own settings
    <!-- not run: needs a GPU -->            why no test runs it

A block of YAML that begins with the name of a file is written there.
"""

import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
# In the order of their links in the README: a page may go on from an earlier one.
PAGES = [
    README,
    *dict.fromkeys(ROOT / name for name in re.findall(r"\((\S+\.md)", README.read_text())),
]
CHECKOUT = "checkout"
# The runner of each place's blocks: a test that calls `blocks_of`, or a script with their lines.
PLACES = {
    CHECKOUT: ROOT / "tests/integration/infra/test_pages.py",
    "docker": ROOT / "tests/integration/infra/docker/test_pages.py",
    "hosts": ROOT / "tests/integration/infra/hosts/test_stack.py",
    "kubernetes": ROOT / "tests/integration/infra/kubernetes/test_stack.py",
    "lambda": ROOT / "tests/integration/infra/lambda_cloud/test_stack.py",
    "registry": ROOT / "tests/integration/docker/test_build_images.py",
    "fresh": ROOT / ".ci/run",
}
LANGUAGES = {"sh", "text", "yaml", "json", "python", "powershell", "diff"}
MARK = re.compile(
    r"<!-- (run|run(?: in (?P<where>\w+))? until|read by|not run): (?P<about>\S.*?) -->"
)
SEPARATORS = re.compile(r"[;|&()]+")
LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Attributes:
        page: its path in the checkout.
        line: of its first line, from 1.
        language: the word after the fence; empty for an indented block.
        kind: "run", "run until", "read by" or "not run".
        about: for each kind the place, the words, the test's path, the reason.
        where: the place of a block that runs until its words are printed.
    """

    page: str
    line: int
    language: str
    text: str
    kind: str = "run"
    about: str = CHECKOUT
    where: str = CHECKOUT

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that the block's first line names; empty for most."""
        found = re.match(r"# (\S+\.yaml)\n", self.text)
        return found[1] if found and self.language == "yaml" else ""

    @property
    def place(self) -> str | None:
        return {"run": self.about, "run until": self.where}.get(self.kind)

    @property
    def commands(self) -> list[list[str]]:
        """The words of each simple command, without its surroundings in a shell."""
        found: list[list[str]] = [[]]
        for line in self.text.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            for word in words:
                if SEPARATORS.fullmatch(word):
                    found.append([])
                else:
                    found[-1].append(word)
            found.append([])
        return [bare for words in found if (bare := _bare(words))]

    def of(self, program: str) -> list[list[str]]:
        """The words behind each call of a program, without `-s` and the stack's name."""
        calls = [words[1:] for words in self.commands if words[0] == program]
        for words in calls:
            if "-s" in words:
                del words[(at := words.index("-s")) : at + 2]
        return calls


def _bare(words: list[str]) -> list[str]:
    """Leave out redirections, beginnings of loops, and variables that a command gets."""
    words = [*words]
    while words and (words[0] in {"do", "then", "sudo"} or re.match(r"\w+=", words[0])):
        del words[0]
    for index, word in enumerate(words):
        if set(word) & {"<", ">"} and not set(word) - set("<>&12"):
            return words[:index]
    return words


SOURCED = Block("README.md", 0, "sh", "source .venv/bin/activate\n")


def blocks() -> list[Block]:
    """All blocks of all pages, in order."""
    return [block for page in PAGES for block in parse(page.relative_to(ROOT), page.read_text())]


def parse(page: Path, text: str) -> Iterator[Block]:
    """The blocks of a page, also those in lists.

    Raises:
        ValueError: a comment begins like a mark and is not one.
    """
    marked: tuple[str, str, str] | None = None
    for token in MarkdownIt().parse(text):
        if token.type in {"fence", "code_block"} and token.map:
            mark = marked or ("run", CHECKOUT, CHECKOUT)
            yield Block(str(page), token.map[0] + 1, token.info, token.content, *mark)
        comment = token.content.strip()
        if token.type == "html_block" and re.match(r"<!-- *((not +)?run|read)\b", comment):
            found = MARK.fullmatch(comment)
            if found is None or token.map is None:
                raise ValueError(
                    f"{page}:{token.map and token.map[0] + 1}: a mark is not {comment}"
                )
            kind = "run until" if found[1].endswith("until") else found[1]
            marked = (kind, found["about"], found["where"] or CHECKOUT)
        elif token.nesting >= 0:
            marked = None


def blocks_of(place: str) -> dict[str, list[Block]]:
    """The shell blocks of a place by page, with the files that a page has before them."""
    found: dict[str, list[Block]] = {}
    for block in blocks():
        if (block.language == "sh" and block.place == place) or block.file:
            found.setdefault(block.page, []).append(block)
    return {page: each for page, each in found.items() if any(not block.file for block in each)}


def read_by(file: str) -> list[Block]:
    """The blocks of a test that runs their commands with its own settings, in order.

    The test binds each to a name of its own (`tests/unit/test_pages.py` checks that it uses all).
    """
    path = str(Path(file).resolve().relative_to(ROOT))
    return [block for block in blocks() if (block.kind, block.about) == ("read by", path)]


@dataclass
class Terminal:
    """Runs blocks one after another, as in one terminal: they share variables and the folder.

    Attributes:
        folder: where the next block begins.
        environment: of the next block.
        instead: the test's own ports and names, by those of the pages.
    """

    folder: Path
    environment: dict[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> str:
        """Runs a block to its end; its output.

        Raises:
            AssertionError: a command failed, or the block took longer than ten minutes.
        """
        text = block.text
        for name, its_own in self.instead.items():
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", its_own, text)
        if block.file:
            (self.folder / block.file).write_text(text)
            return ""
        with tempfile.TemporaryDirectory() as kept:
            after = f'\nenv -0 >"{kept}/environment"\npwd >"{kept}/folder"\n'
            printed, code = self._bash(f"set -euo pipefail\n{text}{after}", block)
            until = block.kind == "run until"
            assert not until or block.about in printed, f"{block} did not print {block.about}"
            expected = {0, 130, -signal.SIGINT} if until else {0}
            assert code in expected, f"{block} ended with {code}:\n{text}\n{printed}"
            if code == 0:
                variables = (Path(kept) / "environment").read_text().split("\0")
                self.environment = dict(each.split("=", 1) for each in variables if each)
                self.folder = Path((Path(kept) / "folder").read_text().strip())
        return printed

    def _bash(self, script: str, block: Block) -> tuple[str, int]:
        """Runs a script in a session of its own; nothing of that is left afterwards."""
        process = subprocess.Popen(
            # A shell's background processes ignore Ctrl-C, and so do their children.
            ["env", "--default-signal=INT", "bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        late = threading.Timer(LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        printed = ""
        try:
            assert process.stdout is not None
            for line in process.stdout:
                printed += line
                if block.kind == "run until" and block.about in line:
                    os.killpg(process.pid, signal.SIGINT)
            return printed, process.wait()
        finally:
            late.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
