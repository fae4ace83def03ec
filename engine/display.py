"""The user's view of an operation: a line when a step begins, and one when it ends.

Secrets are shown as `[secret]`; messages are searched for the secrets that the engine knows.
"""

import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from engine.differences import describe_differences, reason, resuming
from engine.values import Properties
from trainyard.access import terminal, typed

if TYPE_CHECKING:
    from rich.live import Live

SYMBOLS = {
    "same": " ",
    "create": "+",
    "update": "~",
    "replace": "+-",
    "delete-replaced": "--",
    "delete": "-",
    "drift": "~",
    "gone": "-",
}
STYLES = {"+": "green", "~": "yellow", "-": "red", " ": "dim"}
LEVELS = {"info": "", "warning": "yellow", "error": "bold red"}
CHANGES = frozenset(SYMBOLS) - {"same"}
SHORTEST_SECRET = 8  # characters: shorter ones would black out innocent words


class Display:
    """Shows steps and messages and counts them; with `debug` also tracebacks of failures.

    `runs` are those that resume if their node restarts, by the node's address.

    Attributes:
        lost: the output cannot be written. No step fails because of that.
    """

    def __init__(
        self,
        *,
        dry_run: bool,
        diff: bool,
        debug: bool,
        stack: str = typed.DEFAULT_STACK,
        runs: Mapping[str, Any] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.lost = False
        self._console = Console(highlight=False)
        self._dry_run = dry_run
        self._diff = diff
        self._debug = debug
        self._stack = stack
        self._runs = runs or {}
        self._lock = threading.Lock()
        self._secrets: list[str] = []  # the longest first: one may hold another
        self._started = time.monotonic()
        # A terminal shows what runs in its last line, and then only how it ended.
        self._redraws = self._console.is_terminal and not debug
        self._running: dict[object, tuple[str, float]] = {}
        self._live: Live

    @contextmanager
    def step(
        self,
        operation: str,
        urn: str,
        olds: Properties | None = None,
        inputs: Properties | None = None,
    ) -> Iterator[None]:
        """Show one step from its start to its end."""
        begun = time.monotonic()
        changes = None if inputs is None else (olds or {}, inputs)
        if not self._dry_run and not self._redraws:
            self._line(operation, urn, "...", changes=changes)
        try:
            with self._shown_as_running(urn, begun):
                yield
        except BaseException:
            self._line(operation, urn, "failed", begun)
            raise
        self.done(operation, urn, begun, changes if self._dry_run or self._redraws else None)

    @contextmanager
    def _shown_as_running(self, urn: str, begun: float) -> Iterator[None]:
        """On a terminal, show a step with a clock in the last line until it ends."""
        if self._dry_run or not self._redraws:
            yield
            return
        from rich.live import Live  # noqa: PLC0415 - only a terminal needs it

        step = object()
        with self._lock:
            self._running[step] = urn, begun
            if len(self._running) == 1:
                self._live = Live(get_renderable=self._clock, console=self._console, transient=True)
                self._live.start()
        try:
            yield
        finally:
            with self._lock:
                del self._running[step]
                if not self._running:  # also gives the cursor back
                    self._live.stop()

    def _clock(self) -> Text:
        now = time.monotonic()
        steps = [f"{_name(urn)} {now - begun:.0f}s" for urn, begun in [*self._running.values()]]
        text = terminal.clean(f"    {', '.join(steps)}")
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")

    def done(
        self,
        operation: str,
        urn: str,
        begun: float | None = None,
        changes: tuple[Properties, Properties] | None = None,
    ) -> None:
        """Show the end of a step, which began at a time, or took none.

        With --diff it shows the properties that differ before and after the step.
        """
        with self._lock:
            self.counts[operation] += 1
        if operation != "same":
            state = "planned" if self._dry_run else "done"
            self._line(operation, urn, state, begun, changes)

    def hide(self, secrets: Iterable[str]) -> None:
        """From now on show `[secret]` in place of these texts and of each of their lines."""
        lines = {line for text in secrets for line in (text, *text.splitlines())}
        with self._lock:
            self._secrets = sorted(
                {*self._secrets, *(line for line in lines if len(line) >= SHORTEST_SECRET)},
                key=len,
                reverse=True,
            )

    def outputs(self, olds: Properties, news: Properties) -> None:
        """Note which outputs of the stack change."""
        with self._lock:
            changed = [key for key in olds.keys() | news.keys() if olds.get(key) != news.get(key)]
            self.counts["outputs"] += len(changed)

    def message(self, level: str, text: str, urn: str) -> None:
        """Show a message of the program, a provider or the engine."""
        if level == "debug" and not self._debug:
            return
        name = f"{urn.rpartition('::')[2]}: " if urn else ""
        text = typed.commands(self.clean(text), self._stack)
        self._print(f"{level}: {name}{text}", style=LEVELS.get(level, "dim"))

    def trace(self, error: BaseException) -> None:
        """Show where an unexpected error comes from, with --debug only."""
        if self._debug:
            self._print(self.clean("".join(traceback.format_exception(error))), style="dim")

    def summary(self, title: str) -> None:
        words = [
            f"{count} {operation}" for operation, count in sorted(self.counts.items()) if count
        ]
        took = f"{time.monotonic() - self._started:.1f}s"
        self._print(f"{title}: {', '.join(words) or 'nothing to do'} ({took})")

    @property
    def changed(self) -> int:
        """How many steps changed something, or would."""
        return sum(self.counts[operation] for operation in CHANGES)

    def _line(
        self,
        operation: str,
        urn: str,
        state: str,
        begun: float | None = None,
        changes: tuple[Properties, Properties] | None = None,
    ) -> None:
        symbol = SYMBOLS[operation]
        what = f"{_short(urn)} {operation} {state}"
        if self._redraws and state == "done":  # its type is the program's business
            what = _name(urn)
        took = "" if begun is None or self._dry_run else f" ({time.monotonic() - begun:.1f}s)"
        line = f" {symbol:2} {what}{took}"
        goes = operation.startswith("delete")  # what it had is not told
        if changes and changes[0]:
            told_why = self._dry_run and not self._diff and not goes
            why = reason(*changes, self.clean) if told_why else ""
            told = [why, resuming(*changes, self._runs)]
            line += f": {'; '.join(filter(None, told))}" if any(told) else ""
        differs = changes if self._diff and not goes else None
        lines = describe_differences(*differs, self.clean) if differs else ()
        style = "bold red" if state == "failed" else STYLES[symbol[0]]
        self._print(line, style, "".join(f"\n        {each}" for each in lines))

    def _print(self, text: str, style: str = "", below: str = "") -> None:
        """Print lines at once: steps at the same time do not part them."""
        shown = Text(terminal.clean_lines(text), style=style)
        shown.append(terminal.clean_lines(below), style="dim")
        try:
            self._console.print(shown, soft_wrap=True)
        except SystemExit:
            self.lost = True

    def clean(self, text: str) -> str:
        """The text with `[secret]` in place of the hidden secrets."""
        for value in self._secrets:
            text = text.replace(value, "[secret]")
        return text


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]


def _short(urn: str) -> str:
    """Type and name of a URN, without the types of its parents."""
    if not urn.startswith("urn:"):
        return urn
    type_, name = urn.split("::")[2:4]
    return f"{type_.rpartition('$')[2]} {name}"
