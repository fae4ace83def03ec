"""Progress lines become a bar on a terminal and stay lines elsewhere."""

import io
from datetime import UTC, datetime, timedelta

import pytest

from tests.client import Terminal
from tests.growth import growth
from tests.hostile import HARM, LINK, TITLE
from trainyard.access.terminal import COLOUR, CONTROL, clean, print_json
from trainyard.client import console
from trainyard.client.console import print_table, say, warn
from trainyard.client.log_writer import CLEAR_LINE, LogWriter, bar
from trainyard.report import progress

PREFIX = "(RayTrainWorker pid=7) "


def record(done, text="epoch 1/2", total=4):
    return PREFIX + progress.Batches(text, done, total, float(done)).log_line


def test_elsewhere_the_log_is_passed_on_in_plain_lines():
    out = io.StringIO()
    writer = LogWriter(out)
    writer.write(f"one\n{record(3)}\n{PREFIX}progress: as it was\n")
    restored = progress.Restored("s3://ray/first/c-3", None, "10.0.0.5").log_line
    writer.write(f"{PREFIX}{progress.Epoch(1).log_line}\n{PREFIX}{restored}\nhal")  # D48
    writer.close()
    assert out.getvalue() == (
        f"one\n{PREFIX}epoch 1/2: batch 3 of 4, 3.0 batches/s\n{PREFIX}progress: as it was\n"
        f"{PREFIX}{restored}\nhal"
    )


def test_a_terminal_gets_one_bar_that_moves():
    out = Terminal()
    writer = LogWriter(out)
    writer.write(f"one\n{record(1)[:50]}")
    writer.write(f"{record(1)[50:]}\n{record(4)}\n{record(5, total=None)}\ntwo\nrest")
    writer.close()
    assert out.getvalue() == (
        f"{CLEAR_LINE}one\n"
        f"{CLEAR_LINE}[######------------------] epoch 1/2 batch 1/4 1.0 batches/s"
        f"{CLEAR_LINE}[########################] epoch 1/2 batch 4/4 4.0 batches/s"
        f"{CLEAR_LINE}{PREFIX}epoch 1/2: batch 5, 5.0 batches/s\n"
        f"{CLEAR_LINE}two\n{CLEAR_LINE}rest"
    )


@pytest.mark.parametrize(
    ("done", "total", "cells"), [(0, 9, 0), (9, 9, 24), (12, 9, 24), (1, 2, 12), (0, 0, 0)]
)
def test_the_bar_shows_the_share_that_is_done(done, total, cells):
    assert bar(done, total, "x") == f"[{'#' * cells}{'-' * (24 - cells)}] x"


def test_batches_pass_and_are_counted(capsys):
    out = Terminal()
    batches = progress.report_batches([1, 2, 3], "epoch 1/1", progress.BAR_INTERVAL_S)
    assert list(batches) == [1, 2, 3]
    LogWriter(out).write(capsys.readouterr().out)
    assert "epoch 1/1 batch 3/3" in out.getvalue()


def log_of(*pieces, out=None):
    out = io.StringIO() if out is None else out
    writer = LogWriter(out)
    for piece in pieces:
        writer.write(piece)
    writer.close()
    return out.getvalue()


NODE = "/var/tmp/trainyard-716c27/ray-worker-0/ray/session_1/runtime_resources"
FRAME = f'  File "{NODE}/%s_files/_ray_pkg_1901c1/%s", line 3, in loop'
MINE, OURS = FRAME % ("working_dir", "boom.py"), FRAME % ("py_modules", "trainyard/job.py")
OF_RAY = (
    "2026-11-29 05:31:27,179\tINFO job_manager.py:581 -- Runtime env is setting up.",
    "Running entrypoint for job raysubmit_1: python boom.py",
    "2026-11-29 05:31:38,865\tINFO worker.py:2029 -- Connected. View \x1b[1mit\x1b[0m",
)
REPEATS = f"{MINE}\x1b[32m [repeated 2x across cluster] (see RAY_DEDUP_LOGS)\x1b[0m"


def of_process(kind, line, pid=7):
    return f"\x1b[36m({kind} pid={pid}, ip=10.0.0.4)\x1b[0m {line}"


def test_a_log_has_its_users_lines_and_paths():
    shown = ["first", OF_RAY[0], "Traceback (most recent call last):", MINE, OURS, "KeyError: 3"]
    raised = [f"{line}" for line in ("[FailurePolicy] RAISE", "  Source: worker group", MINE)]
    hidden = [
        "- (ip=10.0.0.4, pid=7) world_rank=1",
        *(of_process("TrainController", line, 9) for line in raised),
        of_process("RayTrainWorker", REPEATS),
        of_process("RayTrainWorker", f"Traceback (most recent call last):{REPEATS}"),
    ]
    kept = of_process("RayTrainWorker", "hello\x1b[32m [repeated 2x across cluster]\x1b[0m")
    log = "".join(f"{line}\n" for line in (*OF_RAY, *shown, *hidden, kept))
    there = '  File "boom.py", line 3, in loop'
    ours = '  File "trainyard/job.py", line 3, in loop'
    out = io.StringIO()
    LogWriter(out).write(log)
    assert out.getvalue().splitlines() == [*shown[:3], there, ours, "KeyError: 3", kept]
    out = io.StringIO()
    LogWriter(out, verbose=True).write(log)
    assert out.getvalue() == log


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_foreign_text_has_no_effect_on_a_terminal(harm, monkeypatch, capsys):  # F39
    for terminal in (True, False):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        say(f"run {harm}\nnext")
        warn(f"run {harm}")
        print_table([{"run": f"a{harm}b", harm: 1}], ("run", harm), as_json=False)
        print_table([{"run": harm}], ("run",), as_json=True)
        said = COLOUR.sub("", "".join(capsys.readouterr()))  # the table's titles are bold
        assert not CONTROL.search(said), repr(said)
    for out in (io.StringIO(), Terminal()):  # JSON can hide it from the reader of the log
        passed = log_of(f"{record(1, harm)}\n", out=out).replace(CLEAR_LINE, "")
        assert not CONTROL.search(passed), repr(passed)
    assert clean(f"{harm}\n\t").isprintable()
    for cut in range(len(harm) + 1):  # a log comes in pieces
        passed = log_of(f"one {harm[:cut]}", f"{harm[cut:]} two\n")
        assert not CONTROL.search(passed), repr(passed)
        assert passed.startswith("one ")
        assert passed.endswith(" two\n")


def test_a_log_keeps_its_colours_and_lines():
    text = "\x1b[36m(pid=7)\x1b[0m \x1b[1;38:5:9mred\x1b[m\tx\r\n50%\r100%\n"
    for cut in range(len(text)):
        assert log_of(text[:cut], text[cut:]) == text
    assert log_of(f"{TITLE}x{LINK}y") == "xclicky"
    assert log_of("\x1b[31mred\n", out=Terminal()).endswith("\x1b[0m")


def test_a_string_without_an_end_does_not_hold_a_log_up():
    assert log_of("one \x1b]0;", "x" * 5000, " two\n").endswith(" two\n")


def test_brackets_are_no_markup(monkeypatch, capsys):
    """A run that is called so broke the table of all."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table([{"run": "[/red] [link=x]a[/link]"}], ("run",), as_json=False)
    assert "[/red] [link=x]a[/link]" in capsys.readouterr().out


def test_a_line_without_an_end_takes_linear_time():  # F56
    def write(pieces):
        out = io.StringIO()
        writer = LogWriter(out)
        for _ in range(pieces):
            writer.write("x" * 1000)
        writer.close()
        assert len(out.getvalue()) == pieces * 1000

    assert growth(write, 1000, 8) < 32  # 8 where it is linear, 64 where each piece copies all


def test_a_line_too_long_for_a_record_is_passed_on():  # F56
    line = "progress: " * progress.LONGEST + record(1)
    assert log_of(f"{line}\n") == f"{line}\n"
    assert progress.parse(f"{'x' * 1000}{record(1)}")


def test_json_has_no_nan(capsys):  # F61
    rows = [{"loss": float("nan"), "more": [float("inf"), 1.5]}]
    print_json(rows)
    print_table(rows, ("loss",), as_json=True)
    assert capsys.readouterr().out == '[{"loss": null, "more": [null, 1.5]}]\n' * 2


JOB = {"job": "raysubmit_ABCDEFGHIJKLMNOP", "status": "PENDING", "run": "a-run-with-a-long-name"}
JOB |= {"user": "ada", "started": "2026-01-31 18:00:05+00:00", "waits": "it waits for GPU 1"}


def shown(monkeypatch, capsys, rows, width, **options):
    """The lines of a table on a terminal of a width, with its colours."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    columns = ("job", "status", "run", "user", "started", "waits")
    print_table(rows, columns, as_json=False, whole=("job", "run"), below="waits", **options)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [20, 60, 70, 90, 200])
def test_a_table_fits_the_terminal_and_cuts_no_id(width, monkeypatch, capsys):
    lines = [COLOUR.sub("", each) for each in shown(monkeypatch, capsys, [JOB], width)]
    table = [line for line in lines if not line.startswith(("(too", f"{JOB['job']} waits"))]
    needed = len(JOB["job"]) + 2 + len(JOB["run"])
    assert max(map(len, table)) <= max(width, needed)
    assert all(any(JOB[name] in line for line in table) for name in ("job", "run"))
    assert f"{JOB['job']}: it waits for GPU 1" in lines  # whatever the width
    left_out = {20: "status, user, started", 60: "user, started", 70: "started"}.get(width)
    assert [line for line in lines if "too narrow" in line] == (
        [f"(too narrow for {left_out})"] if left_out else []
    )
    assert left_out or "2026-01-31 18:00 " in f"{table[1]} "


def test_a_long_cell_goes_on_below(monkeypatch, capsys):
    rows = [JOB | {"status": " ".join(f"word{i}" for i in range(20))}]
    text = COLOUR.sub("", "\n".join(shown(monkeypatch, capsys, rows, 100)))
    assert all(f"word{i}" in text for i in range(20))
    assert max(map(len, text.splitlines())) <= 100


def test_states_have_colours_where_a_terminal_has_them(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    assert any("\x1b[33mPENDING" in line for line in shown(monkeypatch, capsys, [JOB], 200))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[33m" in line for line in shown(monkeypatch, capsys, [JOB], 200))


def test_an_empty_table_says_what_to_type(monkeypatch, capsys):
    said = "no jobs yet: `make up` first"
    print_table([], ("job", "run"), as_json=True, empty=said)
    assert capsys.readouterr() == ("[]\n", "")
    print_table([], ("job", "run"), as_json=False, empty=said)  # into a pipe
    assert capsys.readouterr() == ("job\trun\n", f"{said}\n")
    assert shown(monkeypatch, capsys, [], 80, empty=said) == []


def test_times_and_durations_are_as_people_tell_them():
    now = datetime.now(UTC)
    for seconds, said in ((5, "5 s ago"), (185, "3 min ago"), (7_300, "2 h ago")):
        assert console.ago((now - timedelta(seconds=seconds)).isoformat()) == said
    day = "2026-01-31 18:00:05+00:00"
    for time in (day, "", "x" * 40, (now + timedelta(days=1)).isoformat(sep=" ")):
        assert console.ago(time) == time[:16]
    for seconds, said in ((26.4, "26s"), (86, "1m 26s"), (7500, "2h 05m"), (3e5, "3d 11h")):
        assert console.duration(seconds) == said
    row = {"started": day, "seconds": 86}
    assert console.texts([row], ("started", "seconds"), short=True) == [[day[:16], "1m 26s"]]
    assert console.texts([row], ("started", "seconds")) == [[day, 86]]
