"""A job's log for the user: its own lines and paths, with its progress as a bar on a terminal."""

import math
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TextIO

from trainyard.access.terminal import COLOUR, clean, clean_log
from trainyard.report import progress

BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[2K"
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
LONGEST_ESCAPE = 4096  # characters; a longer one without an end is not an escape sequence
PLAIN = "\x1b[0m"
# Lines of Ray before the first of a job: its submission, and its connection to the cluster.
BEFORE = re.compile(r"[\d-]{10} [\d:,]{12}\tINFO \w+\.py:\d+ -- |Running entrypoint for job ")
CODE = re.compile(  # a folder with a job's code on a node
    r"(?:/[\w.-]{1,80}){1,12}/runtime_resources/\w{1,20}_files/_ray_pkg_[0-9a-f]{1,64}/"
)
# Before the lines of a process: its kind, pid and address.
OF_A_PROCESS = re.compile(r"\(\w+ pid=(\d+)(?:, ip=([^)]*))?\) ")
RANK = re.compile(r"- \(ip=(\S{1,64}), pid=(\d+)\) world_rank=(\d+)")  # of a worker of Ray Train
# Ray Train's controller as an actor ends with the error of a worker, which its driver raises; of
# workers with the same error Ray tells the number.
RAISES = "[FailurePolicy] RAISE"
REPEATED = re.compile(r"(?:Traceback \(most|  ).*\[repeated \d+x across cluster\]")


class Lines:
    """Cuts a text that comes in pieces into lines, in linear time for any line length."""

    def __init__(self) -> None:
        self._begun: list[str] = []

    def feed(self, text: str) -> list[str]:
        """Takes a piece; returns the complete lines, without their ends."""
        first, *others = text.split("\n")
        self._begun.append(first)
        if not others:
            return []
        lines = ["".join(self._begun), *others[:-1]]
        self._begun = [others[-1]]
        return lines

    def rest(self) -> str:
        """Return the unfinished line, once."""
        rest = "".join(self._begun)
        self._begun = []
        return rest


@dataclass
class Choice:
    """The lines of a log that a user asks for: those with a text, of a rank's worker, the last."""

    grep: str = ""
    worker: int | None = None
    tail: int | None = None  # how many of the first `of` lines are wanted, the last ones
    of: float = math.inf
    skip: int = 0  # so many first lines are not wanted
    # Address and process id of each rank's workers, as far as the log tells.
    ranks: defaultdict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))

    def look(self, pieces: Iterable[str]) -> None:
        """Notes the ranks in a log, and the number of its lines so far."""
        lines, self.of = Lines(), 0
        for piece in pieces:
            self.of += len([*map(self.has, lines.feed(piece))])

    def after(self, text: str) -> str:
        """Return the next piece of a log without the lines that are skipped."""
        *skipped, rest = text.split("\n", self.skip)
        self.skip -= len(skipped)
        return "" if self.skip else rest

    def has(self, line: str) -> bool:
        """Return whether a line is chosen."""
        if told := RANK.search(line):
            self.ranks[int(told[3])].add((told[1], told[2]))
        line = COLOUR.sub("", line)
        if self.worker is not None:
            by, workers = OF_A_PROCESS.match(line), self.ranks[self.worker]
            # Ray leaves out the address of a process on the driver's machine.
            if not by or workers.isdisjoint(
                (ip, by[1]) for ip, _ in workers if by[2] in (None, ip)
            ):
                return False
        return self.grep in line


class LogWriter:
    """Passes the lines of a log on, with its records of progress in readable form.

    On a terminal they become one bar that moves in place. Ray's lines before the job's first are
    left out unless `verbose`, and what it repeats of an error; a path of the job's code is that in
    the uploaded folder.
    """

    def __init__(
        self, out: TextIO | None = None, *, verbose: bool = False, choice: Choice | None = None
    ) -> None:
        self._out = out or sys.stdout
        self._choice = choice or Choice()
        self._held = deque[str](maxlen=self._choice.tail)
        self._left = 0 if self._choice.tail is None else self._choice.of
        self._verbose = verbose
        self._terminal = self._out.isatty()
        self._lines = Lines()
        self._unfinished = ""  # the beginning of an escape sequence
        self._coloured = False
        self._begun = False  # the job has printed a line
        self._failed: set[str] = set()  # pids of Ray's processes that repeat the driver's error

    def write(self, text: str) -> None:
        """Takes the next piece of the log, of any length."""
        before = self._choice.skip
        text = self._unfinished + self._choice.after(text)
        self._left -= before - self._choice.skip
        found = UNFINISHED.search(text, max(0, len(text) - LONGEST_ESCAPE))
        end = found.start() if found else len(text)
        self._unfinished = text[end:]
        self._pass_on(clean_log(text[:end]))

    def _pass_on(self, text: str) -> None:
        self._coloured = self._coloured or "\x1b" in text
        for line in self._lines.feed(text):
            self._left -= 1
            if self._choice.has(line) and self._is_shown(line):
                self._held.append(line)
            if self._left <= 0:
                self._release()
        self._out.flush()

    def _release(self) -> None:
        held, self._held = self._held, deque()
        for line in held:
            found = progress.parse(line)
            match found.record if found else None:
                case progress.Batches(total=int(total)) as batches if self._terminal:
                    beside = clean(batches.beside_bar)
                    self._out.write(CLEAR_LINE + bar(batches.done, total, beside))
                case progress.Batches() as batches if found:
                    self._write_line(found.before + batches.line)
                case progress.Epoch():
                    pass  # the job has its own line for it
                case _:
                    self._write_line(line)

    def close(self) -> None:
        """Writes the last lines, also the unfinished one."""
        rest = self._lines.rest()
        if self._held.maxlen is not None or not self._choice.has(rest):
            self._held.extend(filter(self._choice.has, filter(None, [rest])))
            rest = ""
        self._release()
        end = PLAIN if self._terminal and self._coloured else ""
        self._out.write((CLEAR_LINE if self._terminal else "") + rest + end)
        self._out.flush()

    def _is_shown(self, line: str) -> bool:
        if self._verbose or len(line) > progress.LONGEST:
            return True
        line = COLOUR.sub("", line)
        if RANK.search(line) or (not self._begun and BEFORE.match(line)):
            return False
        self._begun = True
        by = OF_A_PROCESS.match(line)
        if by and line.endswith(RAISES):
            self._failed.add(by[1])
        return not by or (by[1] not in self._failed and not REPEATED.match(line, by.end()))

    def _write_line(self, line: str) -> None:
        line = line if self._verbose else own_paths(line)
        self._out.write(f"{CLEAR_LINE}{line}\n" if self._terminal else f"{line}\n")


def own_paths(text: str) -> str:
    """Return a text with paths of a job's code as in the uploaded folder, not as on the node."""
    return CODE.sub("", text)


def bar(done: int, total: int, text: str) -> str:
    """A bar of fixed width with its text: `[####----] text`."""
    filled = BAR_CELLS * min(done, total) // max(total, 1)
    return f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {text}"
