"""The terminal output of all commands: the one place where text is printed.

Names, messages and logs come from clusters, stores, accounts and repositories, where others can
write: none of their characters moves a cursor, sets a title, fills the clipboard or begins a line
of its own. It needs only Python: some commands run before anything is installed.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from trainyard import json_values
from trainyard.access import typed

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

LEAST_CELLS = 16  # of a column that may be wrapped
GAP = 2  # cells between columns
# Characters that are not seen, or that terminals interpret, except line ends and tabs: control
# characters of both sets, Unicode's line separators, and its format characters (Cf), such as those
# of no width or that change the direction of writing.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
# An escape sequence: a CSI, a string (OSC, DCS, SOS, PM, APC) with its end, or a short one.
ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~])"
)
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


class _Output(io.TextIOWrapper):
    """Standard output or error: if it cannot be written, the command ends and says why once.

    As other programs do, it says nothing to a reader that left early, such as `head`.

    Raises:
        SystemExit: from `write` and `flush`, with code 1.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for the rest of its buffer
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        raise SystemExit(1) from None


def _flush_at_exit() -> None:
    try:
        sys.stdout.flush()
    except SystemExit:
        os._exit(1)


for _number, _name in enumerate(("stdin", "stdout", "stderr")):
    _stream = getattr(sys, _name)
    if _stream is None:  # it is closed: the next file would take its place
        _descriptor = os.open(os.devnull, os.O_WRONLY if _name == "stderr" else os.O_RDONLY)
        os.set_inheritable(_descriptor, True)
        _stream = open(_descriptor, "w" if _number else "r")  # noqa: PTH123, SIM115
        setattr(sys, _name, _stream)
        setattr(sys, f"__{_name}__", _stream)  # also keeps it open
    # A letter that the terminal's encoding lacks is shown by its code, and does not end a command.
    if _number and isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="backslashreplace")
        if _stream is getattr(sys, f"__{_name}__"):  # not a test's or a notebook's
            _made = _Output(
                _stream.buffer,
                _stream.encoding,
                _stream.errors,
                line_buffering=_stream.line_buffering,
                write_through=_stream.write_through,
            )
            setattr(sys, _name, _made)
atexit.register(_flush_at_exit)
_excepthook = sys.excepthook


def _without_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """End a command with one line if an interrupt is not handled, or is the second one."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
    else:
        _excepthook(kind, error, trace)


sys.excepthook = _without_traceback


def clean(text: object) -> str:
    """Return foreign text as one line; characters with an effect are shown by their codes."""
    shown = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))
    return shown.replace("\n", "\\n").replace("\t", " ")


def clean_lines(text: object) -> str:
    """Return a message without effects: lines stay lines, colours are dropped."""
    return "\n".join(clean(line) for line in COLOUR.sub("", str(text)).split("\n"))


def clean_log(text: str) -> str:
    """Return a log with line ends and colours, but without other control characters."""
    kept = re.split(f"({ESCAPE.pattern})", text)
    parts = [
        part if i % 2 and COLOUR.fullmatch(part) else "" if i % 2 else _without_controls(part)
        for i, part in enumerate(kept)
    ]
    return "".join(parts)


def say(text: object, stack: str = typed.DEFAULT_STACK, *, rule: bool = False) -> None:
    """Print a message.

    Args:
        text: names commands in backquotes; they are printed as the user can type them.
        stack: the stack that it is about.
        rule: whether a line is drawn above and below it.
    """
    shown = typed.commands(clean_lines(text), stack)
    lines = [line := "-" * len(shown), shown, line] if rule else [shown]
    print("\n".join(lines), flush=True)  # noqa: T201


def warn(text: object, stack: str = typed.DEFAULT_STACK) -> None:
    """Print a message to standard error: standard output may be a log, JSON or a value."""
    print(typed.commands(clean_lines(text), stack), file=sys.stderr, flush=True)  # noqa: T201


def agree(question: object) -> bool:
    """Ask the user on standard error; return whether the answer is yes."""
    sys.stderr.write(f"{clean_lines(question)} [y/N] ")
    sys.stderr.flush()
    try:
        return input("").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def pass_on(log: str) -> None:
    """Write the output of another program to standard error."""
    sys.stderr.write(clean_log(log))
    sys.stderr.flush()


def print_value(text: str, end: str = "\n") -> None:
    """Print text that a program may read: unchanged, but on a terminal without effects."""
    print(clean_lines(text) if sys.stdout.isatty() else text, end=end, flush=True)  # noqa: T201


def print_json(value: Any, indent: int | None = None) -> None:
    """Print JSON."""
    print(as_json(value, indent), flush=True)  # noqa: T201


def as_json(value: Any, indent: int | None = None) -> str:
    """Return valid JSON in printable ASCII: null for NaN and infinities."""
    return json_values.text(value, indent).replace("\x7f", r"\u007f")


def print_row(cells: Sequence[object]) -> None:
    """Print one line with tabs between the cells."""
    print("\t".join(map(clean, cells)), flush=True)  # noqa: T201


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    *,
    whole: Sequence[str] = (),
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table that fits the terminal; see `table`.

    Args:
        titles: one for each column.
        rows: a cell for each column.
        width: in characters, None for the terminal's.
        whole: titles of the columns that are never cut.
        styles: rich's style of a cell, by its text.
    """
    from rich.console import Console  # noqa: PLC0415 - slow

    console = Console(width=width)
    shown, left_out = table(titles, rows, console.width, whole=whole, styles=styles)
    console.width = max(console.width, shown.min_width or 0)  # the terminal wraps the rest
    console.print(shown)
    if left_out:
        say(f"(too narrow for {', '.join(left_out)})")


def screen() -> Live:
    """Return rich's live display on a screen of its own, which its end removes."""
    from rich.console import Console  # noqa: PLC0415 - slow
    from rich.live import Live  # noqa: PLC0415

    return Live(console=Console(), screen=True, auto_refresh=False)


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,
    *,
    whole: Sequence[str] = (),
    styles: Mapping[str, str] | None = None,
) -> tuple[Table, list[str]]:
    """Return a table for rich, and the titles of the last columns that do not fit.

    Long cells of columns that are not whole continue in lines below.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - slow
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [[clean(cell) for cell in row] for row in (titles, *rows)]
    longest = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    least = [
        size if title in whole else min(size, LEAST_CELLS)
        for title, size in zip(titles, longest, strict=True)
    ]
    kept = list(range(len(titles)))
    while sum(least[i] + GAP for i in kept) - GAP > width:
        if (last := next((i for i in reversed(kept) if titles[i] not in whole), None)) is None:
            break
        kept.remove(last)
    found = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for i in kept:
        is_whole = titles[i] in whole
        found.add_column(Text(cells[0][i]), min_width=least[i], no_wrap=is_whole, overflow="fold")
    for row in cells[1:]:  # a Text: brackets are not markup
        found.add_row(*(Text(row[i], style=(styles or {}).get(row[i], "")) for i in kept))
    found.min_width = sum(least[i] + GAP for i in kept) - GAP
    return found, [clean(titles[i]) for i in range(len(titles)) if i not in kept]


def _without_controls(text: str) -> str:
    # Progress bars write \r to begin their line again.
    return CONTROL.sub(lambda found: "\r" if found[0] == "\r" else "", text)
