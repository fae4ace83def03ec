"""The lines of a log from a time on, in the log that grows and in the one that is kept."""

import json

import pytest

from trainyard.tracking import log_times
from trainyard.tracking.log_times import LogTimes, lines_before


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(log_times.time, "time", lambda: now[0])
    return now


def grown(times, file, clock, *texts):
    """A log that grows by a text each second."""
    for text in texts:
        with file.open("ab") as log:
            log.write(text)
        with file.open("rb") as log:
            times.look(log)
        clock[0] += 1
    return file.read_bytes()


def test_lines_are_cut_at_a_time(tmp_path, clock):
    log, times = tmp_path / "log", LogTimes()
    whole = grown(times, log, clock, b"one\n1%\r2%\r", b"\nthree\nfo", b"", b"ur\r\nfive\xff\n")
    text = log_times.as_read(whole)
    record = times.record(whole, whole)
    for since, rest in (
        (99, "one\n1%\n2%\nthree\nfour\nfive\ufffd\n"),
        (100, "three\nfour\nfive\ufffd\n"),
        (101, "four\nfive\ufffd\n"),
        (102.9, "four\nfive\ufffd\n"),
        (103, ""),
    ):
        for stored in (False, True):
            before = lines_before(record, since, stored=stored)
            assert "".join(text.splitlines(keepends=True)[before:]) == rest, since


def test_a_log_without_its_middle_is_cut_too(tmp_path, clock):
    times = LogTimes()
    whole = grown(times, tmp_path / "log", clock, *(b"%d\n" % number for number in range(10)))
    stored = whole[:5] + b"\n[left out]\n" + whole[-5:]  # 0 1 and a 2 without its end; 8 9
    record = times.record(stored, whole[:5])
    text = log_times.as_read(stored)
    rest = {
        since: text.split("\n", lines_before(record, 100 + since, stored=True) or 0)[-1]
        for since in (0, 3, 7, 8, 9)
    }
    assert rest[0] == text.partition("\n")[2]
    assert rest[3].startswith("2\n[left out]\n")
    assert rest[7].endswith("8\n9\n")
    assert (rest[8], rest[9]) == ("9\n", "")


def test_many_times_are_thinned_and_never_too_few_lines_shown(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(log_times, "MOST_ROWS", 8)
    times = LogTimes()
    whole = grown(times, tmp_path / "log", clock, *[b"x\n"] * 100)
    record = times.record(whole, whole)
    assert len(json.loads(record)["times"]) <= 8
    for since in range(100):
        assert 0 <= (lines_before(record, 100 + since, stored=False) or 0) <= since + 1
    assert lines_before(record, 199, stored=False) == 100


@pytest.mark.parametrize("record", [None, b"", b"[1]", b'{"times": 3, "lines": []}'])
def test_a_log_without_notes_has_no_times(record):
    assert lines_before(record, 1, stored=False) is None
    odd = b'{"times": [null, 1, 2], "lines": [3, "x", 2], "head": {}, "left": []}'
    assert lines_before(odd, 9, stored=False) == 2
