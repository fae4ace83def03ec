"""What commands tell of jobs and runs whose cluster is new, away or down."""

import json
import time
from types import SimpleNamespace

import pytest

from tests import ui_stack
from tests.client import Train
from tests.replicas import replica_log
from trainyard.client import job_log
from trainyard.client import outputs as contract
from trainyard.client.command import INTERRUPTED
from trainyard.client.console import about
from trainyard.client.recorded import AWAY, LOST
from trainyard.client.ui.stacks import Stack
from trainyard.serving import SERVICES
from trainyard.store.objects import FolderStore
from trainyard.tracking import run_folder

JOB = {"command": ["python", "x.py"], "user": "ada", "started": "2026-01-31T01:00:00+00:00"}
ENDED = {"status": "SUCCEEDED", "ended": "2026-01-31T01:01:30+00:00"}
RECORDS = {
    "done": [JOB | ENDED | {"job": "raysubmit_first"}, JOB | ENDED | {"job": "raysubmit_done"}],
    "lost": [JOB | {"job": "raysubmit_lost"}],
    "odd": [JOB | {"job": "a\nb", "status": "GONE"}],
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The results of the stack `old` of this machine, where nothing of it runs."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "data/trainyard/old/storage"
    for run, records in RECORDS.items():
        for record in records:
            log = folder / run / run_folder.log_of(record)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"log of {record['job']}\n")
        (folder / run / run_folder.JOBS).write_bytes(run_folder.lines(records))
    (tmp_path / "Pulumi.yaml").write_text("name: trainyard\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_ask_engines", lambda _: "{}")
    yield folder
    about(contract.DEFAULT_STACK)  # messages of the next test


def listed(train: Train, *options: str) -> list[tuple[str, str, str]]:
    assert train("list", "--json", *options) == 0, train.err
    return [(row["job"], row["status"], row["waits"]) for row in json.loads(train.out)]


def test_a_new_head_lists_the_jobs_of_the_one_before(results, tmp_path, monkeypatch, train):
    head = ui_stack.Head([ui_stack.job(1)])
    with ui_stack.up(head, tmp_path, results, monkeypatch):
        [(known, *_)] = listed(train)
        (results / "lists").mkdir()
        (results / "lists/jobs.jsonl").write_bytes(run_folder.lines([JOB | {"job": known}]))
        found = listed(train, "--all")
        assert [name for name, *_ in found] == [known, "raysubmit_done", "raysubmit_lost"]
        assert found[1:] == [
            ("raysubmit_done", "SUCCEEDED", ""),
            ("raysubmit_lost", "FAILED", LOST),
        ]
        assert [*listed(train, "--all", "--user", "ada", "--limit", "1")] == [found[1]]
        assert train("compare", "done", "lost") == 0, train.err
        assert "90.0" in train.out
    found = listed(train, "--all")
    assert found[0] == ("raysubmit_done", "SUCCEEDED", "")
    assert found[1:] == [(name, "UNREADABLE", AWAY) for name in (known, "raysubmit_lost")]
    assert "no job server answers" in train.err


def test_what_a_stack_has_left_is_shown_after_its_end(results, tmp_path, train):
    stack = ("-s", "old")
    assert [name for name, *_ in listed(train, "--all", *stack)] == [
        "raysubmit_done",
        "raysubmit_lost",
    ]
    assert f"stack 'old' is down: what follows is in {results}" in train.err
    assert listed(train, "--all", "--status", "failed", *stack)[0][2] == LOST
    for command, said in (
        (("runs", "--user", "ada", "--status", "succeeded"), "done"),
        (("show", "done"), "SUCCEEDED, 90 s, by ada"),
        (("logs", "done"), "log of raysubmit_done\n"),
        (("logs", "raysubmit_first"), "log of raysubmit_first\n"),
        (("compare", "done", "lost"), "90.0"),
        (("pull", "done", "--to", str(tmp_path / "pulled")), "done"),
    ):
        assert train(*command, *stack) == 0, (command, train.err)
        assert said in train.out
    assert train("logs", "raysubmit_none", *stack) == 1
    assert "is down: run `make up STACK=old`" in train.err
    assert train("list", *stack) == 1  # without --all only the cluster is asked
    assert Stack("old", None, print).runs().get("done").status == "SUCCEEDED"


def noted(folder, log, lines):
    """Say when the lines of a log were written: the first of them in 2020."""
    found = {"times": [1577880000.0, 1893456000.0], "lines": lines, "head": 9, "left": 0}
    (folder / run_folder.times_of(log)).write_text(json.dumps(found))


def test_the_lines_from_a_time_on_are_shown(results, tmp_path, monkeypatch, train):
    log = run_folder.log_of({"job": "raysubmit_done"})
    (results / "done" / log).write_text("old\nnew\n")
    assert train("logs", "done", "--since", "1h", "-s", "old") == 1
    assert f"when the lines of done/{log} were written is not in" in train.err
    noted(results / "done", log, [1, 2])
    assert train("logs", "done", "--since", "1h", "-s", "old") == 0, train.err
    assert train.out == "new\n"
    assert train("logs", "done", "--since", "2031-01-01", "-s", "old") == 0
    assert train.out == ""
    assert train("logs", "done", "--since", "2019-12-31", "-s", "old") == 0
    assert train.out == "old\nnew\n"
    assert train("logs", "done", "--since", "soon", "-s", "old") == 1
    assert "'soon' is not a time: write one such as 7d, 2h" in train.err
    # Of a job that the cluster knows, its second attempt in a queue.
    job = ui_stack.job(1, status="SUCCEEDED")
    job["metadata"] |= {"run": "live", "attempt": "2"}
    head = ui_stack.Head([job])
    head.log = "old\nnew\nnewer\n"
    with ui_stack.up(head, tmp_path, results, monkeypatch):
        assert train("logs", "live", "--since", "1h") == 1
        assert "is not in" in train.err
        (results / "live/logs").mkdir(parents=True)
        noted(results / "live", run_folder.log_of({"job": f"{job['submission_id']}-2"}), [1, 3])
        for options, said in (((), "new\nnewer\n"), (("--tail", "1"), "newer\n")):
            assert train("logs", "live", "--since", "1h", *options) == 0, train.err
            assert train.out == said
            assert train("logs", "live", "-f", "--since", "1h", *options) == 0, train.err
            assert train.out.startswith(said)


def test_the_log_of_a_service_has_its_replicas_lines(results, tmp_path, monkeypatch, train):
    place = FolderStore(results)
    for service, replica in (("done", "a1"), ("trial", "b2")):
        with replica_log(place, service, replica) as log:
            log.write(f"{service} answers\nends")
    said = "(replica-a1) done answers\n(replica-a1) ends\n"
    assert train("logs", "done", "-s", "old") == 0
    assert train.out == f"log of raysubmit_done\n{said}"
    for name in ("trial", "serve-trial"):
        assert train("logs", name, "--grep", "ans", "-s", "old") == 0, train.err
        assert train.out == "(replica-b2) trial answers\n"
    assert train("logs", "trial", "--since", "1h", "-s", "old") == 0
    assert train("logs", "trial", "--since", "2099-01-01", "-s", "old") == 0
    assert train.out == ""
    deployed = ui_stack.job(1)
    deployed["metadata"]["run"] = "serve-trial"
    head = ui_stack.Head([deployed])
    head.log = "service trial is ready\n"
    with ui_stack.up(head, tmp_path, results, monkeypatch) as file:
        assert train("logs", "trial") == 0, train.err
        assert train.out == f"{head.log}(replica-b2) trial answers\n(replica-b2) ends\n"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"storageUrl": "s9://x"}))
        assert train("logs", "trial") == 0
        assert train.out == head.log
        assert "what the replicas of serve-trial print is not shown: stack " in train.err
        assert train("logs", "trials") == 1
        assert "no job and no run of this cluster is called 'trials'" in train.err


@pytest.mark.parametrize("key", ["trainyard:dataDir", "dataDir"])
def test_results_are_where_the_settings_say(key, results, tmp_path, train):
    moved = tmp_path / "elsewhere"
    results.parent.rename(moved)
    assert train("runs", "-s", "old") == 1
    assert "is down: run `make up STACK=old`" in train.err
    settings, given = tmp_path / "Pulumi.old.yaml", {key: str(moved)}
    settings.write_text(json.dumps({"config": given}))
    assert train("runs", "-s", "old") == 0
    assert "done" in train.out
    settings.write_text(json.dumps({"config": given | {"hosts": ["x"]}}))
    assert train("runs", "-s", "old") == 1  # they are on those machines


def test_a_service_is_followed_until_it_is_withdrawn(results, tmp_path, monkeypatch, train):
    place, printed = FolderStore(results), ["old", "new"]
    deployed = ui_stack.job(1)
    deployed["metadata"]["run"] = "serve-trial"
    head = ui_stack.Head([deployed])
    head.log = "service trial is ready\n"

    def prints(*lines):
        printed.extend(lines)
        text = "".join(f"{line}\n" for line in printed)
        place.write("serve-trial/logs/replica-1-b2.txt", text.encode())

    def interrupt():
        raise KeyboardInterrupt

    def follow(*steps, options=()):
        between = iter(steps)
        clock = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda _: next(between, lambda: None)()
        )
        monkeypatch.setattr(job_log, "time", clock)
        return train("logs", *(options or ("trial",)), "-f")

    with ui_stack.up(head, tmp_path, results, monkeypatch):
        assert follow() == 0, train.err  # its job, as nothing is served
        assert train.out.startswith(head.log)
        place.write(f"{SERVICES}/trial", b"{}")
        prints()
        withdraw = lambda: place.delete(f"{SERVICES}/trial")  # noqa: E731
        more = (lambda: prints("more"), lambda: None, withdraw, lambda: prints("last"))
        assert follow(*more, options=("trial", "--tail", "1")) == 0, train.err
        said = ["new", "more", "last"]
        assert train.out.splitlines() == [f"(replica-b2) {line}" for line in said]
        place.write(f"{SERVICES}/trial", b"{}")
        assert follow(interrupt, options=("serve-trial", "--grep", "more")) == INTERRUPTED
        assert train.out == "(replica-b2) more\n\nserve-trial goes on\n"
