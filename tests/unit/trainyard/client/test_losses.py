"""Before a head or machines end, the jobs and runs that are lost are named."""

import io
import json
import socket
import time
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from engine import operation
from trainyard.access import typed
from trainyard.client import losses, store
from trainyard.client import outputs as contract
from trainyard.client.dashboard import UnreachableError
from trainyard.client.job_server import Job, Status
from trainyard.client.pull.transfer import Transfer
from trainyard.client.state import TRAIN_WORKER, Actor, RayNode
from trainyard.resume import checkpoint_files
from trainyard.store import objects
from trainyard.tracking.runs import Run

ENDS = {"expiresAt": "2030-01-01T00:00:00+00:00"}


@pytest.fixture
def place(stack):
    for name in ("first", "second"):
        run = Run(stack.storage_url, name)
        run.start({"epochs": 1})
        run.write_metrics([{"epoch": 0}])
    return store.open_store(stack)


@pytest.fixture(autouse=True)
def jobs(monkeypatch):
    """Jobs of the cluster; nobody can be asked."""
    found = []
    monkeypatch.setattr(losses.JobServer, "jobs", lambda _: found)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return found


@pytest.fixture
def warned(monkeypatch, capsys):
    """What is said of a stack with these outputs, also where going on is refused."""

    def warned(outputs, *options, refused="", head=False):
        monkeypatch.setattr(contract, "_ask_engines", lambda _: json.dumps(outputs))
        with pytest.raises(SystemExit, match=refused) if refused else nullcontext():
            if head:
                monkeypatch.setattr("sys.argv", ["losses", "-s", "dev", *options])
                losses.main()
            else:
                losses.agree_to_the_end("dev", yes="--yes" in options, force="--force" in options)
        out, err = capsys.readouterr()
        assert out == ""
        return err

    return warned


def test_a_run_is_home_until_it_has_stored_more(place, stack, tmp_path):
    assert losses.unpulled(place) == ["first", "second"]
    Transfer(place, "first", tmp_path / "home").run()
    assert losses.unpulled(place) == ["second"]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "w.pt").write_bytes(b"w")
    run = objects.open_url(f"{stack.storage_url}/first")
    checkpoint_files.store(run, "checkpoint_000001-abcd", tmp_path / "files", {})
    assert losses.unpulled(place) == ["first", "second"]
    Transfer(place, "first", tmp_path / "home").run()
    place.write("first/checkpoint_000002-cdef/w.pt", b"cut off")
    assert losses.unpulled(place) == ["second"]
    Run(stack.storage_url, "first").write_metrics([{"epoch": 0}, {"epoch": 1}])
    assert losses.unpulled(place) == ["first", "second"]


def test_what_a_reservation_of_this_machine_ends_is_kept(place, values, warned):  # D3
    reserved = {"reservedFrom": "2029-12-31T00:00:00+00:00"}
    assert "first, second" in warned(values | ENDS, refused="YES=1")
    assert warned(values | ENDS | reserved) == ""


def test_a_search_that_has_not_ended_is_not_home(place, tmp_path):
    place.write("second/metrics.jsonl", b"")
    Transfer(place, "second", tmp_path / "home").run()
    assert losses.unpulled(place) == ["first"]
    place.write("second/trial_00001/result.json", b"{}")
    assert losses.unpulled(place) == ["first", "second"]
    Transfer(place, "second", tmp_path / "home").run()
    assert losses.unpulled(place) == ["first"]


def test_a_run_that_was_copied_elsewhere_is_safe(place):
    place.write("first/replicated.json", b'{"checkpoint": "", "epochs": 0, "files": 0}')
    place.write("second/replicated.json", b'{"checkpoint": "", "epochs": 1, "files": 0}')
    assert losses.unpulled(place) == ["first"]


@pytest.mark.usefixtures("place")
def test_a_rented_machine_without_an_end_time_ends_with_its_runs(  # A43
    values, warned, monkeypatch
):
    here = nullcontext(Mock(outputs=contract.parse(json.dumps(values), "dev", "here")))
    monkeypatch.setattr(losses.connection, "to", lambda _: here)
    ssh = {"host": "192.0.2.7", "port": 22, "user": "trainyard", "hostKey": "ssh-ed25519 AAAA"}
    assert warned(values | {"ssh": ssh | {"keyFile": "/srv/key", "privateKey": ""}}) == ""
    rented = values | {"ssh": ssh | {"keyFile": "", "privateKey": "made by the stack"}}
    assert "were not pulled" in warned(rented, refused="YES=1")


@pytest.mark.usefixtures("place")
def test_runs_are_named_where_the_machines_end(values, warned):
    assert warned(values) == ""
    said = warned(values | ENDS, refused="YES=1")
    assert warned(values | ENDS, "--yes") == said
    command = typed.command("train pull RUN -s dev")
    assert said == (
        f"with stack 'dev' these end:\n  runs   first, second; they were not pulled: `{command}`\n"
    )


@pytest.mark.usefixtures("place")
def test_what_bills_and_who_works_there_is_shown_before_the_question(values, warned, jobs):
    head, first, second = values["nodes"]
    head["hourlyCost"], first["hourlyCost"] = 0.5, 1.25
    second |= {"hourlyCost": 9, "launched": False}  # a machine that is not there costs nothing
    for number, user in enumerate(("bob", "ada", "bob")):
        metadata = {"user": user}
        jobs.append(Job(status=Status.RUNNING, submission_id=f"j{number}", metadata=metadata))
    said = warned(values | ENDS, refused="FORCE=1").splitlines()
    assert said[0] == "with stack 'dev' these end:"
    assert said[1:3] == ["  jobs   j0 (of bob), j1 (of ada), j2 (of bob)", "  users  ada, bob"]
    assert said[3].startswith("  runs   first, second; they were not pulled")
    assert said[4:] == ["  bills  2 machines, 1.75 $/h"]


def test_a_store_that_is_gone_holds_no_destroy_up(values, monkeypatch, warned):
    monkeypatch.setattr(losses, "DEADLINE_S", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        bucket = {"storageUrl": "s3://ray", "bucket": "ray", "objectStoreEndpoint": address}
        begun = time.monotonic()
        refused = "nobody can be asked"
        said = warned(values | ENDS | bucket, refused=refused)
        assert time.monotonic() - begun < 30
    assert "cannot tell which runs of stack 'dev' were not pulled (no answer within 1 s)" in said
    said = warned(values | ENDS | bucket, "--yes")
    assert "cannot tell which runs" in said


def test_jobs_that_run_are_named_and_end_by_force_only(values, warned, jobs):
    jobs += [
        Job(status=Status.SUCCEEDED, submission_id="job-0"),
        Job(status=Status.RUNNING, submission_id="job-1", metadata={"run": "night", "user": "ada"}),
        Job(status=Status.PENDING, job_id="02000000"),
    ]
    named = "with stack 'dev' these end:\n  jobs   job-1 (night, of ada), 02000000\n  users  ada\n"
    for options in ((), ("--yes",)):
        said = warned(values, *options, refused="FORCE=1")
        assert said == named
    assert warned(values, "--force") == named


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.parametrize("known", [True, False])
def test_at_a_terminal_the_user_decides_also_about_what_is_not_known(
    answer, known, values, monkeypatch, warned, jobs
):
    jobs.append(Job(status=Status.RUNNING, submission_id="job-1"))
    if not known:
        silent = Mock(side_effect=UnreachableError("ReadTimeoutError"))
        monkeypatch.setattr(losses.JobServer, "jobs", silent)
        # A script may end it: often it is dead.
        assert "cannot tell which" in warned(values)
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    refused = "nothing was changed" if answer == "n" else ""
    said = warned(values, refused=refused)
    assert ("job-1" in said, "which jobs run" in said) == (known, not known)


def test_the_runs_on_each_node_that_restarts_are_known(values, monkeypatch, jobs):
    nodes = [RayNode(id=f"n{i}", address=f"10.0.0.{i}", is_head=i == 0) for i in range(3)]
    common = {"name": "", "pid": 1, "state": "ALIVE", "bundle": {}}
    actors = [
        Actor(id=f"{job}{node}", kind=kind, job=job, node=f"n{node}", **common)
        for kind, job, node in (
            *((TRAIN_WORKER, "01", node) for node in (0, 1, 2)),
            *((TRAIN_WORKER, "02", 2), ("Other", "03", 1), (TRAIN_WORKER, "gone", 1)),
            (TRAIN_WORKER, "01", 9),
        )
    ]
    for number, run in enumerate(("night", "day", "other"), 1):
        known = {"job_id": f"0{number}", "metadata": {"run": run}}
        jobs.append(Job(status=Status.RUNNING, submission_id=f"j{number}", **known))
    monkeypatch.setattr(contract, "_ask_engines", lambda _: json.dumps(values))
    monkeypatch.setattr(losses.ClusterState, "nodes", lambda _: nodes)
    monkeypatch.setattr(losses.ClusterState, "actors", lambda _: actors)
    found = losses.find("dev", runs=False)
    assert found.resuming == {"10.0.0.1": ["night"], "10.0.0.2": ["day", "night"]}
    assert json.loads(found.variables[operation.RESUMING]) == found.resuming
    # Without an answer the jobs are known, and no runs are named.
    silent = Mock(side_effect=UnreachableError("ReadTimeoutError"))
    monkeypatch.setattr(losses.ClusterState, "actors", silent)
    found = losses.find("dev", runs=False)
    assert (len(found.jobs), found.variables) == (3, {})


def test_a_stack_that_is_not_up_is_the_destroys_matter(warned):
    assert warned({}) == ""


def test_what_is_not_known_of_a_state_is_asked_about(values, warned, monkeypatch, tmp_path):
    """As with one from another version of the client, whatever TRAINYARD_OUTPUTS says."""
    monkeypatch.setenv("TRAINYARD_OUTPUTS", str(tmp_path / "of another stack"))
    assert warned(values) == ""
    del values["rayToken"]
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert "in stack 'dev' (stack 'dev' lacks" in warned(values, refused="nothing was changed")


RUNNING = (
    Job(status=Status.RUNNING, submission_id="job-1", metadata={"run": "night"}),
    Job(status=Status.RUNNING, submission_id="job-2"),
)
ENDED = Job(status=Status.FAILED, submission_id="job-3")
NAMED = "a new head of stack 'dev' ends these jobs: job-1 (night), job-2\n"


def test_a_new_head_names_its_jobs_and_the_user_decides(values, warned, jobs, monkeypatch):
    jobs.append(ENDED)
    assert warned(values, head=True) == warned(values, "--refuse", head=True) == ""  # F43
    jobs += RUNNING
    assert warned(values, "--refuse", head=True, refused="FORCE=1") == NAMED  # F43
    assert warned(values, head=True, refused="FORCE=yes") == NAMED
    assert warned(values, "--yes", head=True) == NAMED
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    for answer, refused in (("y", ""), ("", "nothing was changed")):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert warned(values, head=True, refused=refused) == f"{NAMED}Go on? [y/N] "


def test_a_head_that_does_not_answer_is_taken_for_one_with_jobs(values, warned, monkeypatch):
    silent = Mock(side_effect=UnreachableError("ReadTimeoutError"))
    monkeypatch.setattr(losses.JobServer, "jobs", silent)
    said = warned(values, head=True, refused="nobody can be asked")
    assert said.endswith("ends these jobs: all that run there\n")


def test_the_jobs_of_a_stack_elsewhere_are_asked_for_through_its_connection(
    values, warned, monkeypatch
):
    here = nullcontext(Mock(outputs="those that answer here"))
    monkeypatch.setattr(losses.connection, "to", lambda _: here)
    monkeypatch.setattr(losses.costs, "month", lambda outputs: outputs)
    server = Mock(return_value=Mock(jobs=lambda: RUNNING))
    monkeypatch.setattr(losses, "JobServer", server)
    monkeypatch.setattr(losses, "ClusterState", Mock())
    assert warned(values, "--yes", head=True) == NAMED
    server.assert_called_once_with("those that answer here")
