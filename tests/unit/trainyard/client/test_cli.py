"""The command line's own faults; the rest is in tests/integration/training."""

import io
import json
import re
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
import shellingham

from tests import web
from trainyard.access.terminal import CONTROL
from trainyard.client import api, cli, job_log, results, scripts, submission
from trainyard.client import outputs as contract
from trainyard.client.commands import drill, status
from trainyard.client.commands import logs as logs_command
from trainyard.client.commands import submit as submit_command
from trainyard.client.drill import procedure
from trainyard.client.job_server import Job, Status
from trainyard.tracking import runs

EPOCH = {"epoch": 0, "loss": 1.25, "valid_acc": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alexnet", "--name", "A B"], "run name 'A B' is not"),
        (["nope"], "no job is called 'nope'"),
        (["alexnet", "--entrypoint-resources", "4"], "is not a JSON object of amounts"),
        (["alexnet", "--on-head", "--entrypoint-num-cpus", "1"], "--on-head reserves nothing, and"),
        (["alexnet", "--runtime-env", "/nowhere"], "cannot read runtime environment /nowhere"),
        (["alexnet", "--outputs", "/nowhere"], "cannot read outputs file /nowhere (No such"),
    ],
)
def test_a_fault_of_the_user_is_one_message(arguments, message, train):
    assert train("submit", *arguments) == 1
    err = train.err
    assert err.startswith(f"error: {message}") or message in err
    assert err.count("\n") == 1


def test_unknown_options_are_usage_errors(train):
    assert train("submit", "alexnet", "--what") == 2
    assert train("drill", "disk-loss", "first") == 2
    assert train("drill", "store-loss", "first", "--seconds", "0") == 2


def test_a_jobs_help_needs_no_stack(monkeypatch, train):
    monkeypatch.setattr(contract, "read", lambda *_: pytest.fail("looked for a stack"))
    assert train("submit", "alexnet", "--", "--help") == 0
    assert "--epochs EPOCHS       epochs in all (default: 20)" in train.out
    assert train("submit", "alexnet", "--", "--epochs", "0") == 2
    assert train("submit", "alexnet", "--", "--epoch", "1") == 2  # abbreviated
    assert "unrecognized arguments: --epoch 1: did you mean '--epochs'? `" in train.err


@pytest.mark.parametrize("job", scripts.names())
def test_the_help_of_each_job_needs_no_stack(job, monkeypatch, train):
    """Also of those whose arguments Hydra reads."""
    monkeypatch.setattr(contract, "read", lambda *_: pytest.fail("looked for a stack"))
    assert train("submit", job, "--", "--help") == 0
    said = train.out
    itself = f"python -m trainyard.jobs.{job.replace('/', '.')} --help`"
    assert said.startswith("usage: ") or said.rstrip().endswith(itself)


def test_versions_are_printed_of_what_is_installed(monkeypatch, train):
    installed = {"trainyard-ray": "0.1.0", "ray": "2.60.0", "torch": "2.11.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    assert train("--version") == 0
    assert train.out == "trainyard-ray 0.1.0\nray 2.60.0\ntorch 2.11.0\n"
    del installed["torch"]
    assert train("--version") == 0
    assert train.out == "trainyard-ray 0.1.0\nray 2.60.0\n"


@pytest.mark.parametrize("program", ["train", "training/__main__.py"])  # as with `python -m`
def test_the_completion_is_of_train_however_it_was_started(program, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    # For any shell that started the tests.
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    monkeypatch.setattr(sys, "argv", [program, "--show-completion", "bash"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert "_TRAIN_COMPLETE=complete_bash" in (script := capsys.readouterr().out)
    monkeypatch.setattr(sys, "argv", [program, "--install-completion", "bash"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    assert (tmp_path / ".bash_completions" / "train.sh").read_text() == script.rstrip("\n")
    assert ".bash_completions/train.sh" in (tmp_path / ".bashrc").read_text()


def test_a_drill_asks_first(monkeypatch, stack, train):
    monkeypatch.setattr(drill, "reach_jobs", lambda *_: (None, stack))
    monkeypatch.setattr(procedure, "check", lambda *_: None)
    monkeypatch.setattr(procedure, "carry_out", lambda *_: pytest.fail("was not asked"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert train("drill", "head-loss", "first") == 1
    assert "provokes a head-loss in stack 'dev', for all that runs there" in train.err


@pytest.fixture
def path(outputs_file, values):
    """A file with the outputs of the stack."""
    return str(outputs_file(values))


def test_runs_of_a_store_without_a_cluster(path, values, tmp_path, train):
    run = runs.Run(values["storageUrl"], "first")
    run.start({"epochs": 2})
    run.write_metrics([EPOCH])
    train("runs", "--outputs", path)
    header, line = train.out.splitlines()
    assert header.split("\t")[:4] == ["run", "epochs", "job", "loss"]
    assert line.split("\t")[:4] == ["first", "1/2", "", "1.25"]

    train("show", "first", "--outputs", path)
    told = train.out
    assert 'config      {"epochs": 2}' in told
    assert "\n1/2\t" in told  # counted as `runs` does
    target = str(tmp_path / "c.png")
    assert train("show", "first", "--curves", target, "--outputs", path) == 0
    assert f"curves      {target}" in train.out
    assert train("show", "second", "--outputs", path) == 1
    assert "no run is called 'second'" in train.err


def test_a_failed_jobs_status_has_its_last_words(monkeypatch, stack, train):
    log = 'Job failed, last available logs (x):\n  File "a.py", line 3, in f\nKeyError: \x1b[2J\n'
    job = Job(submission_id="one", status=Status.FAILED, message=log)
    server = SimpleNamespace(jobs=lambda: [job])
    monkeypatch.setattr(status, "reach_jobs", lambda *_: (server, stack))
    assert train("status", "one") == 0
    out = train.out
    lines = ("Job failed", '  File "a.py", line 3, in f', "KeyError: \\x1b[2J")
    assert "   message  " + f"\n{'':>12}".join(lines) in out
    assert not CONTROL.search(out)


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (
            Status.SUCCEEDED,
            0,
            r"succeeded'?\n-+\nit took 1m 26s; next: `\S*train show first` has its",
        ),
        (Status.STOPPED, 1, "it took 1m 26s; next: submit it again with --name first, and it goes"),
        (Status.FAILED, 1, "it took 1m 26s; next: submit it again with --name first, and it goes"),
    ],
)
def test_a_jobs_end_tells_how_long_it_took_and_what_is_next(
    ending, code, said, monkeypatch, path, train
):
    ended = Job(submission_id="one", status=ending, start_time=1000, end_time=87_000)
    ended = replace(ended, metadata={"run": "first"}, message="failed with exit code 3, last (x):")
    monkeypatch.setattr(job_log, "follow", lambda *_: ended)
    monkeypatch.setattr(submission, "submit", lambda *_, **__: (None, "one"))
    monkeypatch.setattr(results, "tell", lambda *_: None)
    assert train("submit", "alexnet", "--name", "first", "--outputs", path) == code
    assert re.search(said, train.out)
    assert ("error: failed with exit code 3, last (x):" in train.err) == (ending == Status.FAILED)


def test_a_log_is_chosen_from_and_downloaded(monkeypatch, stack, tmp_path, train):
    log = "one\n- (ip=10.0.0.5, pid=7) world_rank=0\n(W pid=7) two\nthree\n"
    monkeypatch.setattr(api, "log_pieces", lambda *_: iter([log]))
    for options, said in (
        ("--tail 1", "three\n"),
        ("--worker 0", "(W pid=7) two\n"),
        ("--worker 0 --grep one", ""),
    ):
        assert train("logs", "first", *options.split()) == 0
        assert train.out == said
    assert train("logs", "first", "--worker", "1") == 1
    assert "names no worker of rank 1; it names 0: `" in train.err
    assert train("logs", "first", "--download", str(tmp_path)) == 0
    assert (tmp_path / "first.log").read_text() == log
    assert train("logs", "first", "--download", str(tmp_path / "none" / "x")) == 1
    assert "cannot write" in train.err
    # One that grows: its last line, and then all.
    server = SimpleNamespace(jobs=lambda: [Job(submission_id="first", status=Status.RUNNING)])
    monkeypatch.setattr(logs_command, "reach_jobs", lambda *_: (server, stack))

    def follow(_server, _id, write, *_):
        write(f"{log}four\nfive\n")
        return Job(status=Status.SUCCEEDED)

    monkeypatch.setattr(job_log, "follow", follow)
    assert train("logs", "first", "-f", "--tail", "1") == 0
    assert train.out.splitlines()[:3] == ["three", "four", "five"]


@pytest.mark.parametrize(("option", "told"), [((), ["first"]), (("--no-wait",), [])])
def test_a_job_that_was_followed_to_its_end_tells_its_results(
    option, told, monkeypatch, path, train
):
    names = []
    monkeypatch.setattr(submission, "submit", lambda *_, **__: (None, "job-1"))
    monkeypatch.setattr(submit_command, "follow_job", lambda *_: None)
    monkeypatch.setattr(results, "tell", lambda _, name: names.append(name))
    assert train("submit", "alexnet", "--name", "first", *option, "--outputs", path) == 0
    assert names == told


@pytest.mark.parametrize(
    ("text", "option", "is_plain"),
    [("", (), True), ("", ("--on-head",), False), ("import ray", (), False)],
)
def test_a_script_without_ray_runs_on_a_worker(
    text, option, is_plain, monkeypatch, path, tmp_path, train
):
    sent = []
    monkeypatch.setattr(submission, "submit", lambda each, *_, **__: sent.append(each) or (0, ""))
    (tmp_path / "own").mkdir()
    script = tmp_path / "own/job.py"
    script.write_text(text)
    given = (*(option or ("--entrypoint-num-gpus", "0")), "--no-wait", "--outputs", path)
    assert train("submit", str(script), *given) == 0
    assert [each.is_plain for each in sent] == [is_plain]
    assert [each.entrypoint for each in sent] == [{} if option else {"GPU": 0.0}]


@pytest.mark.parametrize(
    ("option", "opened", "said"),
    [
        ((), True, ""),
        (("--print",), False, ""),
        ((), False, "found no browser: open the address yourself\n"),
    ],
)
def test_the_dashboard_opens_with_its_token_beside_it(
    option, opened, said, monkeypatch, path, values, train
):
    pages = []
    monkeypatch.setattr("webbrowser.open", lambda url: pages.append(url) or opened)
    assert train("dashboard", *option, "--outputs", path) == 0
    assert values["rayToken"] in train.out
    assert values["dashboardUrl"].rstrip("/") in train.out
    assert train.err == said
    assert bool(pages) == (opened or bool(said))
    assert "canary" not in str(pages)  # a browser's arguments and its history show addresses


@pytest.fixture
def head(outputs_file, values):
    """A head that has just been asked for its version, and then restarts: `says` what it answers.

    Nothing of a status of 0: the connection is cut.
    """
    Path(values["storageUrl"].removeprefix("file://")).mkdir()
    version = {"version": "4", "ray_version": ray.__version__, "ray_commit": "x"}

    def answer(asked):
        if asked.path == "/api/version":
            return 200, json.dumps(version).encode()
        return head.says if head.says[0] else None

    with web.serving(answer) as server:
        outputs = str(outputs_file(values | {"dashboardUrl": server.url}))
        yield (head := SimpleNamespace(says=(0, b""), outputs=outputs))


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (0, b"", "does not answer (ProtocolError)"),
        (500, b"Traceback (most recent call last):\n  GcsRpcError", "does not answer (status 500)"),
        (503, b"<html>starting \x1b]0;x\x07</html>", "does not answer (status 503)"),
        (404, b"Job s1 does not exist", "has no job s1 any more: its head was restarted"),
        (200, b"<html>", "does not answer (JSONDecodeError)"),
    ],
)
@pytest.mark.parametrize(
    "command", [["list"], ["status", "s1"], ["logs", "s1"], ["logs", "-f", "s1"], ["stop", "s1"]]
)
def test_a_head_that_restarts_is_one_message(command, status, body, said, head, train):  # F27
    head.says = status, body
    assert train(*command, "--outputs", head.outputs) == 1
    err = train.err
    assert err.startswith("error: the cluster")
    assert said in err
    assert err.count("\n") == 1
    assert not CONTROL.search(err)
    assert train("runs", "--outputs", head.outputs) == 0  # which needs the store alone


FILE = "cluster_name: trainyard\nauth: {ssh_user: canary}\n"


@pytest.mark.parametrize("old_mode", [None, 0o644])
def test_the_cluster_file_is_written_for_its_user_alone(
    old_mode, monkeypatch, outputs_file, values, tmp_path, train
):  # A22 A23 A24 F38
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "ray_cluster_config.yaml"
    if old_mode is not None:
        file.write_text("a longer file of another stack, which is replaced as a whole " * 9)
        file.chmod(old_mode)
    outputs = str(outputs_file(values | {"rayClusterFile": FILE}))
    assert train("cluster-file", "--outputs", outputs) == 0
    assert train.out == (
        "Generating ray config file ray_cluster_config.yaml using IP from head instance\n"
    )
    assert file.read_text() == FILE
    assert file.stat().st_mode & 0o777 == 0o600

    other = tmp_path / "none" / "other.yaml"
    assert train("cluster-file", "-o", str(other), "--outputs", outputs) == 1
    assert f"cannot write {other} (No such file" in train.err


def test_a_stack_of_this_machine_has_no_cluster_file_and_needs_no_tunnel(path, train):
    assert train("cluster-file", "--outputs", path) == 1
    assert "stack 'dev' has no cluster file" in train.err
    assert train("tunnel", "--outputs", path) == 0
    assert "stack 'dev' answers here" in train.out
