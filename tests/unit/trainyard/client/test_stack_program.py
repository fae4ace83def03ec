"""The commands of a stack's life run the checkout's modules, as `make` does, and end as these."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from tests.waiting import wait_for
from trainyard.access import repository
from trainyard.client import health, losses, stack_program, submission
from trainyard.client import outputs as contract
from trainyard.client.errors import ClientError

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def started(monkeypatch) -> list[tuple[str, ...]]:
    """The modules that are started, with their arguments; all succeed, and nothing is lost."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("TRAINYARD_STACK", raising=False)
    found = []

    def stand_in(command: list[str], *, cwd: Path, env: dict[str, str]) -> Mock:
        assert command[:3] == [sys.executable, "-P", "-m"]
        assert cwd == ROOT
        forced = ("forced",) if env.get("TRAINYARD_FORCE") == "1" else ()
        named = [env["TRAINYARD_RESUMING"]] if "TRAINYARD_RESUMING" in env else []
        found.append((*command[3:], *forced, *named))
        return Mock(wait=lambda: 0)

    monkeypatch.setattr(subprocess, "Popen", stand_in)
    monkeypatch.setattr(contract, "_ask_engines", lambda _: "{}")
    monkeypatch.setattr(health, "ask", lambda *_: [])
    monkeypatch.setattr(submission, "commit", lambda _: "0123456789-dirty")
    monkeypatch.setattr(losses, "find", lambda *_, **__: losses.Losses(jobs=["job-1 (first)"]))
    for name in ("agree_to_a_new_head", "agree_to_the_end"):
        monkeypatch.setattr(
            losses,
            name,
            lambda stack, _name=name, **how: found.append(
                (_name, stack, str(how).replace(" ", ""))
            ),
        )
    return found


# A command, and the modules that it starts; names in capitals stand for what all have.
STARTS = [
    ("up", "LAUNCH up -s dev"),
    (
        "up -s lab --plan ROOT/p --policy-pack infra/operate/policy",
        "LAUNCH up -s lab --plan=ROOT/p --policy-pack=ROOT/infra/operate/policy",
    ),
    ("up --find-ports -s lab", "infra.operate.find_ports HERE -s lab; LAUNCH up -s lab"),  # F64
    ("up --force --yes", "agree_to_a_new_head dev {'yes':True}; LAUNCH up -s dev forced"),
    ("preview --diff", "LAUNCH preview -s dev --diff"),
    ("preview --plan p", "LAUNCH preview -s dev --plan=ROOT/p"),
    (
        "down --yes",
        "agree_to_the_end dev {'yes':True,'force':False}; LAUNCH destroy -s dev; SALT dev",
    ),
    ("refresh", "LAUNCH refresh -s dev; SALT dev"),
    ("drift --json -s lab", "infra.operate.drift HERE -s lab --json"),
    ("review p", "infra.operate.review HERE -s dev ROOT/p"),
    ("rotate", "infra.operate.rotate HERE -s dev"),
    (
        "rotate ray-token --force",
        "infra.operate.rotate HERE -s dev --secret=ray-token --force; LAUNCH up -s dev forced",
    ),
    ("scale --once", "infra.operate.scale HERE -s dev --once"),
    ("reap --owner -x", "infra.operate.reap HERE --owner=-x"),  # F76
    ("reap --end i-1 i-2 --yes", "infra.operate.reap HERE --yes --end i-1 i-2"),
    ("manifests --to k", "infra.operate.manifests HERE -s dev --to=ROOT/k"),
    ("helm-values -s lab", "infra.operate.manifests HERE -s lab --helm-values"),
    (
        "config set -s lab --path head.cpus 2 --secret",
        "engine HERE config set -s dev -s lab --path head.cpus 2 --secret",
    ),
    ("config set owner -- -hello", "engine HERE config set -s dev owner -- -hello"),  # F76
    ("config set drainSeconds -5", "engine HERE config set -s dev drainSeconds -5"),
    ("output rayToken --json", "engine HERE output -s dev rayToken --json"),
    ("stack ls", "engine HERE stack -s dev ls"),
    ("secrets rotate", "engine HERE secrets -s dev rotate"),
    ("cancel -s lab", "engine HERE cancel -s lab"),
]


@pytest.mark.parametrize(("given", "expected"), STARTS)
def test_a_command_runs_the_code_of_make(given, expected, started, train):
    def written(words: str) -> str:
        meant = {"LAUNCH": "engine.launch", "SALT": "infra.operate.checkout", "HERE": f"-C {ROOT}"}
        for name, value in (meant | {"ROOT": str(ROOT)}).items():
            words = words.replace(name, value)
        return words

    assert train(*written(given).split()) == 0
    assert started == [tuple(each.split()) for each in written(expected).split("; ")]


def test_the_engine_is_told_which_runs_resume(started, train, monkeypatch):
    known = losses.Losses(jobs=[], resuming={"10.0.0.1": ["a"]})
    monkeypatch.setattr(losses, "look", lambda *_, **__: known)
    monkeypatch.setattr(losses, "find", lambda *_, **__: known)
    for command in ("preview", "up"):
        assert train(command) == 0
    assert [each[-1] for each in started] == ['{"10.0.0.1": ["a"]}'] * 2


@pytest.mark.usefixtures("started")
def test_a_preview_tells_of_a_dirty_tree_and_of_what_runs(train, monkeypatch):
    train("preview")
    assert train.out == (
        "the checkout has changes since its commit 0123456, and so has this preview\n"
        "now: job-1 (first). A run resumes after a restart from its last checkpoint.\n"
    )
    monkeypatch.setattr(submission, "commit", lambda _: "0123456789")
    monkeypatch.setattr(losses, "find", lambda *_, **__: losses.Losses(month="3.10 $ of 9 $"))
    train("preview")
    assert train.out == "cost so far this month: 3.10 $ of 9 $\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("config set wrokers 4", "no setting is called 'wrokers': did you mean 'workers'"),
        (
            "config set --path -s lab heda.cpus 4",
            "no setting is called 'heda': did you mean 'head'",
        ),
        ("config set trainyard:nodeGroup[0] x", "did you mean 'nodeGroups'"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused_at_once(given, said, started, train):
    assert train(*given.split()) == 1
    assert said in train.err
    assert started == []


def test_a_good_one_says_what_is_next(started, train):
    for given in ("config set workers 4", "config set docker:host tcp://x"):
        assert train(*given.split()) == 0
        assert "train preview` shows what this changes" in train.out
    assert len(started) == 2


@pytest.mark.parametrize("launched_by_ray", [False, True])
def test_up_ends_with_the_addresses_and_the_next_command(
    launched_by_ray, started, values, monkeypatch, train
):
    values |= {"stack": "lab", "rayClusterFile": "a file" if launched_by_ray else ""}
    monkeypatch.setattr(contract, "_ask_engines", lambda _: json.dumps(values))
    assert train("up", "-s", "lab") == 0
    said = train.out
    assert re.search(r"^  stack  +lab \(Ray", said, re.MULTILINE)
    assert re.search(r"^  Ray dashboard  +http://127\.0\.0\.1:1", said, re.MULTILINE)
    assert "canary" not in said
    _, _, after = said.partition("next:\n")
    first = "cluster-file -s lab" if launched_by_ray else "submit alexnet -s lab -- --epochs 1"
    assert first in after.splitlines()[0]
    assert re.search(r"train info -s lab +these addresses again", after)


def test_an_up_whose_outputs_cannot_be_read_has_succeeded(started, monkeypatch, train):
    monkeypatch.setattr(contract, "_ask_engines", Mock(side_effect=ClientError("no answer")))
    assert train("up") == 0
    assert train.err == "warning: cannot show the addresses: no answer\n"


def test_a_stack_of_the_environment_is_taken(started, monkeypatch, train):
    monkeypatch.setenv("TRAINYARD_STACK", "lab")
    assert train("refresh") == 0
    assert started[0] == ("engine.launch", "refresh", "-s", "lab")


def test_a_refresh_of_a_stack_that_is_not_well_says_so_and_fails(
    started, monkeypatch, train
):  # F63
    monkeypatch.setattr(health, "ask", lambda *_: ["web is stopped"])
    assert train("refresh") == 2
    assert train.err == "error: web is stopped\n"


def test_nothing_ends_when_the_user_declines(started, monkeypatch, train):
    monkeypatch.setattr(losses, "agree_to_the_end", Mock(side_effect=SystemExit("no")))
    assert train("down") == 1
    assert started == []


def test_an_orphan_ends_only_when_that_was_asked_for(started, train):
    assert train("reap", "i-1") == 1
    assert "add --end" in train.err
    assert started == []


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "command", [["up"], ["down"], ["output"], ["drift"], ["reap"], ["review", "p"]]
)
def test_a_client_without_the_program_says_what_is_needed(
    command, inside, started, monkeypatch, tmp_path, train
):
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    monkeypatch.setattr(repository, "is_checkout", lambda: False)
    monkeypatch.chdir(ROOT / "docs" if inside else tmp_path)
    assert train(*command) == 1
    where = f"go to the checkout {ROOT}, run" if inside else "clone the Trainyard repository, run"
    assert where in (said := train.err)
    assert said.count("\n") == 1
    assert started == []


MODULE = """
import pathlib, signal, sys
def end(number, _frame):
    if number == signal.SIGINT:
        sys.exit(7)  # as an engine that ends its steps
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
pathlib.Path("begun").touch()
signal.pause()
"""
PROGRAM = """
from trainyard.client import cli, stack_program
stack_program.LAUNCH = "stand_in"
cli.main()
"""


@pytest.mark.parametrize(
    ("number", "to_group", "code"), [(signal.SIGINT, True, 7), (signal.SIGTERM, False, 143)]
)
def test_signals_and_exit_codes_pass_through(number, to_group, code, tmp_path):
    (tmp_path / "stand_in.py").write_text(MODULE)
    (tmp_path / "Pulumi.yaml").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "refresh"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for("the module", (tmp_path / "begun").exists, 60)
        (os.killpg if to_group else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert (process.returncode, said) == (code, "")


def test_a_signal_that_comes_while_the_module_starts_ends_it(monkeypatch):
    real = subprocess.Popen

    def signalled(*_: object, **__: object) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(["sleep", "60"])

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(stack_program.subprocess, "Popen", signalled)
    with pytest.raises(typer.Exit) as ended:
        stack_program.run("stand_in")
    assert ended.value.exit_code == 143


def test_the_modules_exist():
    named = [
        stack_program.LAUNCH,
        stack_program.SALT,
        "infra.operate.rotate",
        "infra.operate.scale",
    ]
    for name in (
        *named,
        "infra.operate.drift.__main__",
        "infra.operate.review.__main__",
        "infra.operate.reap",
    ):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
