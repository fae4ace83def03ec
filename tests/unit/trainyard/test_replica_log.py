"""What a replica of a service prints is in the folder of the service's run, and stays bounded."""

import logging
import sys
import threading

import pytest

from tests.replicas import replica_log
from tests.waiting import wait_for
from trainyard.client import history
from trainyard.serving import replica_log as module
from trainyard.store.objects import FolderStore

RUN = "serve-first"


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def shown(store, since=0.0):
    return "".join(history.replica_logs(store, RUN, since))


def test_printed_lines_and_errors_are_stored_while_it_runs(store, capsys, monkeypatch):
    monkeypatch.setattr(module, "FIRST_S", 0.01)
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    with replica_log(store, "first", "r1"):
        thread = threading.Thread(target=print, args=("from a thread",))
        thread.start()
        thread.join()
        sys.stderr.write("no end yet")
        logging.getLogger("ray.serve").error("answered with 500")
        logging.getLogger("ray.serve").info("GET /predict 200")
        wait_for("the lines", lambda: "500" in shown(store))
        sys.stdout.write("last")
    lines = "from a thread\nno end yetanswered with 500\nlast\n".splitlines()
    assert shown(store) == "".join(f"(replica-r1) {line}\n" for line in lines)
    assert "from a thread\n" in capsys.readouterr().out  # and where Ray keeps it
    assert shown(store, 4e9) == ""


def test_only_the_last_lines_are_kept(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 40)
    with replica_log(store, "first", "r1") as log:
        for number in range(100):
            log.write(f"line {number:04}\n")
    found = shown(store).splitlines()
    assert found[0] == "(replica-r1) [96 lines before these are left out]"
    assert found[1:] == [f"(replica-r1) line {number:04}" for number in range(96, 100)]
    with replica_log(store, "first", "r2") as log:
        log.write("x" * 1000)
    assert shown(store).endswith(f"(replica-r2) {'x' * 40}\n")


def test_who_looks_again_sees_each_line_once(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 12)  # characters: six lines
    seen = {}
    told = "(replica-r1) [{} lines before these are left out]\n"
    with replica_log(store, "first", "r1") as log:
        for lines, expected in (
            (("a", "b"), ("a", "b")),
            ((), ()),
            (("c", "d"), ("c", "d")),
            (("e", "f", "g", "h", "i", "j", "k", "l"), (6, "g", "h", "i", "j", "k", "l")),
            (("m",), ("m",)),
        ):
            log.write("".join(f"{line}\n" for line in lines))
            log.store()
            found = [*history.replica_logs(store, RUN, seen=seen)]
            assert bool(found) == bool(lines)  # what has not changed is not read
            assert "".join(found) == "".join(
                told.format(e) if isinstance(e, int) else f"(replica-r1) {e}\n" for e in expected
            )


def test_lines_from_a_time_on_are_known(store, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "time", lambda: clock[0])
    monkeypatch.setattr(module, "MOST", 6)
    with replica_log(store, "first", "r1") as log:
        for text in ("a\nb\n", "c\n", "d\n"):
            log.write(text)
            clock[0] += 1
    assert shown(store, 99).startswith("(replica-r1) [1 lines before these are left out]\n")
    assert shown(store, 100) == "(replica-r1) c\n(replica-r1) d\n"
    assert shown(store, 101) == "(replica-r1) d\n"


def test_old_logs_of_a_service_are_removed(store, monkeypatch):
    monkeypatch.setattr(module, "MOST_LOGS", 2)
    for number in range(4):
        for end in ("txt", "json"):
            store.write(f"{RUN}/logs/replica-2026010{number}-r{number}.{end}", b"{}")
    store.write(f"{RUN}/logs/job-1.txt", b"of the job that deploys it")
    with replica_log(store, "first", "new"):
        wait_for("the removal", lambda: len(store.sizes()) == 5)
    kept = ["job-1.txt"] + [
        f"replica-2026010{n}-r{n}.{end}" for n in (2, 3) for end in ("json", "txt")
    ]
    assert sorted(store.listed(f"{RUN}/logs")) == kept


def test_a_store_that_is_away_is_no_error_of_the_replica(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with replica_log(FolderStore(tmp_path / "file"), "first", "r1") as log:
        log.write("a line\n")
    assert "the store does not have this replica's log" in capsys.readouterr().out
