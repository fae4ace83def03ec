"""Nothing that a cluster, store, account or repository says has effects where it is printed."""

import ast
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unicodedata import category

import pytest

from cluster import provider
from engine.display import Display
from engine.values import Properties
from infra.operate.drift.findings import SERVICES, DriftReport, Finding
from tests import ran
from tests.hostile import HARM
from trainyard.access import terminal
from trainyard.access.terminal import CONTROL

ROOT = Path(__file__).parents[2]
PACKAGES = ("trainyard/access", "trainyard/client", "trainyard/quickstart")
PACKAGES += ("cluster", "engine", "hydra_plugins", "infra", "node", "scripts")
PRINTERS = {"print", "input", "getpass", "Console", "StreamHandler", "echo", "secho"}
SAYS = {"say", "warn", "print", "print_value", "print_row"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
ASKED = {"isatty", "flush", "encoding"}  # of a stream, which writes nothing
# The helper, and modules that only write text that it has cleaned.
CLEANS = {
    "trainyard/access/terminal.py",
    "trainyard/client/log_writer.py",
    "trainyard/client/pull/meter.py",  # a bar in place, of a cleaned name
    "trainyard/client/dev/log.py",  # through a LogWriter
    "trainyard/client/commands/drill.py",  # what the client says, to standard error
    "trainyard/client/notebook.py",  # what the user's own cells print, which goes to their streams
    "trainyard/client/sweep/run.py",  # LogWriter writes to it
    "engine/display.py",
    "scripts/new_environment.py",  # a bar in place, of numbers
    "infra/operate/build_images.py",  # what Docker says
    "infra/operate/drift/__main__.py",  # argparse's usage
}
# Programs on a cluster's nodes: a log that `train logs` cleans, or an answer that a program reads.
ON_NODES = {
    "trainyard/client/drill/agent.py",
    "trainyard/client/drill/store.py",
    "node/idle_watch.py",
    "node/ray_leave.py",
    "node/ray_start.py",
    "node/replicate.py",
    "node/agent.py",
    "node/ending.py",
    "node/locked_supervisord.py",
    "node/packages.py",
}
FOR_USERS = ("trainyard/quickstart/project/",)  # files of a project that users begin with
ASKS = r"engine/cli\.py:\d+: (input|getpass\.getpass)\(question\)"  # by a name that the user typed


def printed(path: Path) -> Iterator[str]:
    """Places where a module prints itself, or ends with its own text, which Python prints."""
    tree = ast.parse(path.read_text())
    harmless = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ASKED
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            ends = name in ("exit", "SystemExit") and node.args and _is_text(node.args[0])
            prints = ends or name in PRINTERS or ast.unparse(node.func) == "os.write"
        else:
            stream = isinstance(node, ast.Attribute) and node.attr in STREAMS
            prints = stream and ast.unparse(node.value) == "sys" and node not in harmless
        if prints:
            yield f"{path.relative_to(ROOT).as_posix()}:{node.lineno}: {ast.unparse(node)}"


def _is_text(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(node, ast.JoinedStr) or getattr(called, "id", "") in ("str", "error")


def test_no_module_prints_but_through_the_helper():  # F39
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = [each for path in modules for each in printed(path)]
    by_module = {each.partition(":")[0] for each in found}
    assert by_module >= CLEANS | ON_NODES  # none is listed that does not print
    others = [each for each in found if each.partition(":")[0] not in CLEANS | ON_NODES]
    others = [each for each in others if not each.startswith(FOR_USERS)]
    assert [each for each in others if not re.match(ASKS, each)] == []


def test_json_is_printed_through_the_helper():  # F61
    """Python's own has NaN, which no other reader of JSON takes."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in ON_NODES or name.startswith(FOR_USERS):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and _called(node) in SAYS:
                    inner = {_called(each) for each in ast.walk(node) if isinstance(each, ast.Call)}
                    assert "json.dumps" not in inner, f"{name}:{node.lineno}"


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).removeprefix("terminal.")


def _show(say: Callable[[Display, str], None]) -> Callable[[str], None]:
    return lambda name: say(Display(dry_run=False, diff=True, debug=True), name)


def _urn(name: str) -> str:
    return f"urn:pulumi:dev::trainyard::pulumi-python:dynamic/a:B::{name}"


def _step(display: Display, name: str) -> None:
    olds: Properties = {"text": name}
    with display.step("update", _urn(name), olds, {"text": f"{name}x", name: "new"}):
        pass


def _drift(name: str) -> None:
    finding = Finding(layer=SERVICES, name=name, expected=name, found=name, action=name)
    report = DriftReport(stack="dev", looked=1, findings=[finding], failures=[name])
    text = report.text()
    lines = DriftReport(stack="dev", looked=1, findings=[], failures=[]).text().count("\n") + 6
    assert text.count("\n") == lines  # a name begins no line of its own
    terminal.print_value(text)


PLACES: dict[str, Callable[[str], None]] = {
    "a message": terminal.say,
    "a warning": terminal.warn,
    "a table": lambda name: terminal.print_table([name], [[name]]),
    "a row": lambda name: terminal.print_row([name, name]),
    "JSON": lambda name: terminal.print_json({name: name}),
    "a log": terminal.pass_on,
    "a provider": provider.say,
    "a report of drift": _drift,
    "a message of the engine": _show(lambda display, name: display.message("error", name, "")),
    "a step of the engine": _show(_step),
    "a trace of the engine": _show(lambda display, name: display.trace(ValueError(name))),
    "a summary of the engine": _show(lambda display, name: display.summary(name)),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_name_has_no_effect_where_it_is_printed(place, capsys):  # F39
    for harm in HARM.values():
        place(f"a{harm}b [/red]")
        said = "".join(capsys.readouterr())
        assert said
        assert not CONTROL.search(said), repr(said)


def test_no_character_that_is_not_seen_is_printed():  # F69
    """Controls (Cc), format characters such as those of no width (Cf), other line separators."""
    unseen = {chr(i) for i in range(0x110000) if category(chr(i)) in {"Cc", "Cf", "Zl", "Zp"}}
    assert {each for each in unseen if terminal.clean(f"a{each}b") == f"a{each}b"} == set()
    assert {each for each in unseen if each in terminal.clean_log(each)} == {"\n", "\t", "\r"}
    assert terminal.clean("é ключ 日本 🙂") == "é ключ 日本 🙂"


def test_a_value_is_exact_for_a_program_and_without_effects_on_a_terminal(  # F39
    monkeypatch, capsys
):
    value = "key\r\n\x1b[2J"
    terminal.print_value(value)
    assert capsys.readouterr().out == f"{value}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    terminal.print_value(value)
    assert not CONTROL.search(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [
        ("terminal.say('é ключ'); raise KeyboardInterrupt", ("\\xe9 ", "interrupted\n"), -2),  # F58
        ("terminal.say('é'); raise ValueError('x')", ("\\xe9\n", "ValueError: x\n"), 1),
    ],
)
def test_neither_an_encoding_nor_an_interrupt_shows_a_traceback(code, said, status):
    done = ran.run(
        [sys.executable, "-c", f"from trainyard.access import terminal; {code}"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=ROOT,
    )
    assert done.returncode == status
    assert done.stdout.startswith(said[0])
    assert done.stderr.endswith(said[1])
    assert (done.stderr == said[1]) == (status == -signal.SIGINT)
