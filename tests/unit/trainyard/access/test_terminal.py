"""The output of each command: where it is lost, the command ends with one line and a code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.client.commands import GROUPS

PRINT = ("-c", "from trainyard.access import terminal; terminal.print_value('x')")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")


def run(*words: str, shell: str = "", **given: object) -> tuple[int, str]:
    """The code and the errors of a command, which `shell` redirects."""
    command = [sys.executable, *words]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **given)
    return done.returncode, done.stderr


@needs_full
@pytest.mark.parametrize(
    "module", ["trainyard.client", "engine", "engine.launch", "infra.operate.drift"]
)
def test_each_command_tells_that_its_output_is_lost(module):  # F76
    lost = run("-P", "-m", module, "--help", shell=f">{FULL}")
    assert lost == (1, "error: the output cannot be written: No space left on device\n")


def test_each_command_has_its_help_without_docstrings():  # F76
    commands = [name for named in GROUPS.values() for name in named]
    code = "import sys; from trainyard.client.cli import app\nfor name in sys.argv[1:]:\n"
    code += " app([name, '--help'], standalone_mode=False)"
    assert run("-OO", "-P", "-c", code, *commands, stdout=subprocess.DEVNULL) == (0, "")


def test_a_closed_output_is_told_and_a_closed_input_is_empty():  # F76
    told = (1, "error: the output cannot be written: Bad file descriptor\n")
    assert run(*PRINT, shell=">&-") == told
    assert run(*PRINT, shell="<&- >&-") == told
    assert run(*PRINT, shell=">&- 2>&-") == (1, "")
    assert run("-c", f"{PRINT[1]}; terminal.agree('')", shell="<&-") == (0, " [y/N] ")


def test_a_reader_that_left_early_is_not_told():  # F76
    reading, writing = os.pipe()
    os.close(reading)
    assert run(*PRINT, stdout=writing) == (1, "")
    os.close(writing)


@needs_full
def test_steps_in_hand_survive_the_loss_of_the_output(tmp_path):  # F76
    program = """
from engine.display import Display
shown = Display(dry_run=False, diff=False, debug=False)
with shown.step("create", "a"):
    open("made", "x")
assert shown.lost
"""
    code, _ = run("-c", program, shell=f">{FULL}", cwd=tmp_path)
    assert code == 0
    assert (tmp_path / "made").exists()
