"""A shell completes the names of stacks, jobs, runs and sweeps, in time and silently."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.client import completion, job_server
from trainyard.client.job_server import Job, Status
from trainyard.tracking.runs import Run

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch, train) -> Complete:
    """The suggestions for a line of bash, whose last word is begun."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("_TRAIN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert (train(), train.err) == (0, "")
        return list(train.out.split())

    return complete


@pytest.fixture
def file(values, outputs_file) -> Path:
    for name in ("first", "lr-0", "lr-1", "lr-decay", "wide-0"):
        Run(values["storageUrl"], name).start({"epochs": 1})
    return outputs_file(values)


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("train st", ["status", "stop", "stack"]),
        ("train --version st", ["status", "stop", "stack"]),  # and no versions
        ("train drill ", ["worker-loss", "store-loss", "head-loss", "preempt"]),
        ("train submit --entrypoint-num-", ["--entrypoint-num-cpus", "--entrypoint-num-gpus"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(words, suggested, complete):
    assert complete(words) == suggested


def test_stacks_are_those_with_settings_and_the_attached_clusters(complete, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    attached = tmp_path / "config" / "trainyard" / "attached" / "mine.json"
    attached.parent.mkdir(parents=True)
    attached.touch()
    for name in ("", "class.2026.", "dev.", "lab.", "lambda."):
        (tmp_path / f"Pulumi.{name}yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("train down -s ") == ["class.2026", "dev", "lab", "lambda", "mine"]  # F65
    assert complete("train info --stack la") == ["lab", "lambda"]


def test_jobs_of_training_are_completed(complete):
    assert complete("train submit alex") == ["alexnet"]
    assert "food11/train_tune" in complete("train dev food")


def test_runs_and_sweeps_are_those_in_the_store(complete, file):
    assert complete(f"train show --outputs {file} lr-") == ["lr-0", "lr-1", "lr-decay"]
    assert complete(f"train pull --outputs {file} f") == ["first"]
    assert complete(f"train serve --outputs {file} x") == []
    assert complete(f"train compare --outputs {file} ") == ["lr-"]


def test_jobs_are_completed_by_run_and_id_newest_first(complete, file, monkeypatch):
    found = [
        Job(
            status=Status.RUNNING,
            submission_id=f"job-{number}",
            start_time=number,
            metadata={"run": run} if run else {},
        )
        for number, run in enumerate(("first", "", "second", "second"))
    ]
    found.append(Job(status=Status.RUNNING, job_id="02000000"))  # not a submission
    monkeypatch.setattr(job_server.JobServer, "jobs", lambda _: found)
    ids = ["job-3", "job-2", "job-1", "job-0"]
    assert complete(f"train logs --outputs {file} ") == ["second", "first", *ids]
    assert complete(f"train stop --outputs {file} job-1") == ["job-1"]


HARM = [
    *(r"\$(touch canary)", "$(touch canary)", "`touch canary`", r"\`touch canary`"),
    *("a;touch canary", "a\ntouch canary", "a&touch canary", "a|touch canary"),
    *("'$(touch canary)'", '"$(touch canary)"', "'; touch canary; '", ")); touch canary; ((", "*"),
    *("> canary", "<(touch canary)", "é$(touch canary)", "-x", "~", "=touch", "a b", "a:b", "!!"),
]
IN_SHELL = {
    "bash": "source ./script; COMP_WORDS=({line} '') COMP_CWORD=4; _train_completion train; "
    'for word in "${{COMPREPLY[@]}}"; do echo "[$word]"; eval "true $word"; done',
    "zsh": "compdef() {{ }}; source ./script; _arguments() {{ echo $1; }}; "
    "words=({line} '') CURRENT=5; _train_completion",
    "fish": "source ./script; complete -C '{line} '",
}


# F65
@pytest.mark.parametrize("shell", IN_SHELL)
def test_names_in_a_store_run_nothing_on_tab_or_enter(
    shell, values, outputs_file, tmp_path, monkeypatch
):
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    store, here = tmp_path / "storage", tmp_path / "here"
    for folder in (here, *(store / name for name in (*HARM, "good", "lr-0.1"))):
        folder.mkdir(parents=True)
    train = here / "train"
    code = "from trainyard.client import cli, completion as c; c.DEADLINE_S = 100; cli.main()"
    train.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, '-P', '-c', code])}\n")
    train.chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.chdir(here)
    asked = os.environ | {"_TRAIN_COMPLETE": f"source_{shell}"}
    (here / "script").write_bytes(subprocess.check_output(["train"], env=asked))
    command = IN_SHELL[shell].format(line=f"train show --outputs {outputs_file(values)}")
    done = subprocess.check_output([program, "-c", command], text=True)
    assert not (here / "canary").exists()
    assert re.findall(r"[\w.-]+", done) == ["good", "lr-0.1"]


def test_a_stack_that_is_down_or_silent_is_no_matter_of_the_prompt(
    complete, values, outputs_file, monkeypatch, tmp_path
):
    assert complete(f"train logs --outputs {tmp_path}/none ") == []
    monkeypatch.setattr(completion, "DEADLINE_S", 0.5)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        file = outputs_file(json.dumps(values | {"dashboardUrl": url}))
        begun = time.monotonic()
        assert complete(f"train logs --outputs {file} ") == []
        assert time.monotonic() - begun < 10
