"""On a terminal, what runs is a line with clocks, and what has ended a line without machinery."""

import io
import re
from functools import partial

import pytest
from rich.console import Console

from engine import display
from engine.display import Display
from tests.waiting import wait_for

URN = "urn:pulumi:dev::ray::pulumi-python:dynamic/process:Program::{}"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def screen(monkeypatch) -> io.StringIO:
    """A terminal of 60 columns."""
    out = io.StringIO()
    made = partial(Console, file=out, force_terminal=True, width=60, color_system=None)
    monkeypatch.setattr(display, "Console", made)
    return out


def test_a_step_has_a_clock_until_it_ends(screen):
    shown = Display(dry_run=False, diff=False, debug=False)
    clocks = r"ray-head \d+s, ray-worker-0 \d+s"
    with shown.step("create", URN.format("ray-head")):
        with shown.step("create", URN.format("ray-worker-0")):
            wait_for("clocks", lambda: re.search(clocks, screen.getvalue()))
            shown.message("info", "a word", "")
        wait_for("a second", lambda: re.search(r"ray-head [1-9]\d*s", screen.getvalue()))
    lines = re.split(r"[\r\n]|\x1b\[2K", screen.getvalue())
    assert "info: a word" in lines
    ended = [line for line in lines if re.fullmatch(r" \+  ray-(head|worker-0) \(\d+\.\ds\)", line)]
    assert len(ended) == 2
    assert "Program" not in screen.getvalue()
    assert screen.getvalue().rindex(SHOW) > screen.getvalue().rindex(HIDE)


def test_one_that_fails_gives_the_cursor_back_and_says_what_it_was(screen):
    shown = Display(dry_run=False, diff=False, debug=False)
    with pytest.raises(OSError, match="no"), shown.step("update", URN.format("web")):
        raise OSError("no")
    assert "dynamic/process:Program web update failed" in screen.getvalue()
    assert screen.getvalue().rindex(SHOW) > screen.getvalue().rindex(HIDE)


@pytest.mark.parametrize("how", [(True, False), (False, True)])
def test_a_preview_and_a_debugger_have_whole_lines(how, screen):
    dry_run, debug = how
    shown = Display(dry_run=dry_run, diff=False, debug=debug)
    with shown.step("create", URN.format("web")):
        pass
    assert HIDE not in screen.getvalue()
    assert ("process:Program web create" in screen.getvalue()) or dry_run
