"""The output of `make` itself, and the steps of `make demo`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra.operate.gitops.runner import review_stack
from infra.operate.review.page import MARK
from tests.fakes import github as fake

ROOT = Path(__file__).parents[2]
INNER = {"able", "help", "python", "ready"}  # not meant to be typed
PYTHON = """#!/bin/sh
echo "$*" >> {folder}/log
case "$*" in
*scripts.new_environment*) mkdir -p .venv/bin
  for name in pip train python uv; do cp "$0" .venv/bin/$name; done
  echo "Downloading torch (846.6MiB)"; exit {packages} ;;
*infra.operate.gitops*) PYTHONPATH={root} exec {real} "$@" ;;
*"engine preview"*) exit "${{PREVIEW:-0}}" ;;
*infra.operate.review*) printf %s "$PAGE"; exit "${{REVIEW:-0}}" ;;
*"stack ls") [ -z "$LIST" ] && printf '%s\n' $STACKS ;;
*infra.operate.expired) [ -z "$EXPIRED" ] && echo $PAST ;;
*"engine destroy"*) exit "${{DESTROY:-0}}" ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    """Runs make in a checkout whose programs only note their calls."""

    def make(*arguments: str, **codes: int) -> tuple[int, str, list[str]]:
        checkout = tmp_path / "checkout"
        (checkout / "requirements").mkdir(parents=True, exist_ok=True)
        for name in ("Makefile", "pyproject.toml", *map(str, _requirements())):
            shutil.copy2(ROOT / name, checkout / name)
        values = {"folder": tmp_path, "root": ROOT, "real": sys.executable, "packages": 0} | codes
        path = tmp_path / "python.sh"
        path.write_text(PYTHON.format(**values))
        path.chmod(0o755)
        done = subprocess.run(
            ["make", f"PYTHON={tmp_path}/python.sh", *arguments],
            cwd=checkout,
            env={name: value for name, value in os.environ.items() if "MAKE" not in name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        log = tmp_path / "log"
        return done.returncode, done.stdout, log.read_text().splitlines() if log.exists() else []

    return make


def _requirements() -> list[Path]:
    return [path.relative_to(ROOT) for path in (ROOT / "requirements").glob("*.txt")]


def test_make_alone_tells_each_target_in_a_line(run):
    code, said, calls = run()
    assert (code, calls) == (0, [])
    lines = [line for line in said.splitlines() if line.startswith("make ")]
    told = [re.match(r"make ([\w-]+)  +\S", line)[1] for line in lines]
    lists = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(set(" ".join(lists).split()) - INNER)


def test_a_demo_builds_nothing_but_the_environment(run):
    code, said, calls = run("demo")
    assert code == 0, said
    assert said.startswith("make demo: a Ray cluster on this machine")  # what, and how long
    assert "Downloading torch (846.6MiB)" in said  # as uv says it, without a terminal too
    assert "Nothing to be done" not in run("demo")[1]
    assert not [call for call in calls if "go_build" in call]  # P25
    after = [call for call in calls if call.startswith(("-m engine", "submit", "info"))]
    assert [call.split()[1] for call in after] == ["engine.launch", *after[1][7:].split()[:1], "-s"]


def test_packages_that_fail_end_the_demo(run):
    code, said, calls = run("demo", packages=1)
    assert code == 2
    assert "Error 1" in said
    assert not [call for call in calls if "engine" in call]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["test"], "test"),
        (["test-unit"], "test-unit"),
        (["test-rest", "FROM=a b"], "test-rest --from a b"),
        (["retry", "AFTER=test"], "test --again"),
        (["retry", "FROM=o", "LANDING=c"], "test-rest --again --from o --landing c"),
    ],
)
def test_the_parts_of_the_tests_are_asked_for(run, given, asked):
    assert run("setup")[0] == 0
    code, said, calls = run(*given)
    assert code == 0, said
    assert calls[-1] == f"-m tests.parts {asked}"


def test_packages_that_are_not_whole_are_installed_again(run, tmp_path):
    assert run("setup", packages=1)[0] == 2
    assert not (tmp_path / "checkout" / ".venv" / ".ready").exists()


def test_a_copied_or_renamed_checkout_has_its_environment_made_again(run, tmp_path):  # F57
    def made(*targets: str) -> int:
        code, said, calls = run(*targets)
        assert code == 0, said
        return sum("scripts.new_environment" in call for call in calls)

    assert made("setup") == made("setup") == 1
    (tmp_path / "checkout" / ".venv" / ".ready").write_text("/copied/from/.venv\n")
    assert made("setup") == 2
    assert made("setup") == 2


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (["preview", "PLAN=a b.json"], "preview -s dev --plan a b.json"),
        (["preview", "DIFF=1"], "preview -s dev --diff"),
        (["up", "STACK=lab"], "up -s lab"),
        (
            ["up", "POLICY=infra/operate/policy", "LEVELS=levels.json"],
            "up -s dev --policy-pack infra/operate/policy --policy-pack-config levels.json",
        ),
        (["up", "FORCE=1"], "up -s dev --force"),
        (["up", "FIND_PORTS=1"], "up -s dev --find-ports"),
        (["up", "FORCE=yes"], "up -s dev --force --yes"),
        (["down"], "down -s dev"),
        (["down", "YES=1"], "down -s dev --yes"),
        (["down", "FORCE=1"], "down -s dev --force"),
        (["refresh"], "refresh -s dev"),
        (["drift"], "drift -s dev"),
        (["review", "PLAN=p"], "review -s dev p"),
        (["rotate"], "rotate -s dev"),
        (["rotate", "SECRET=ray-token", "FORCE=yes"], "rotate -s dev ray-token --force --yes"),
        (["scale", "STACK=lambda"], "scale -s lambda"),
    ],
)
def test_targets_are_aliases_of_commands(run, given, called):
    assert run("setup")[0] == 0
    code, said, calls = run(*given)
    assert code == 0, said
    assert calls[-1] == called


def test_a_stack_ends_where_no_package_can_be_had(run, tmp_path):  # F49
    assert run("setup")[0] == 0
    (tmp_path / "checkout" / ".venv" / ".ready").unlink()  # as by another checkout's requirements
    code, said, calls = run("down", packages=1)
    assert code == 0, said
    assert "warning: make setup failed; the stack is ended by the packages of before" in said
    assert calls[-1] == "down -s dev"
    assert run("up", packages=1)[0] == 2


@pytest.fixture
def on_runner(run, tmp_path, monkeypatch):
    """Runs make as a runner does; exit code, calls except those of the set-up, and the page."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://states")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "a")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "checkout").mkdir()
    shutil.copy(ROOT / "Pulumi.review.yaml", tmp_path / "checkout")
    assert run("setup")[0] == 0

    def make(*arguments: str, **answers: str) -> tuple[int, list[str], str]:
        given = {"STACKS": "dev"} | answers
        for name in ("PAGE", "PREVIEW", "REVIEW", "LIST", "STACKS", "DESTROY", "EXPIRED", "PAST"):
            monkeypatch.setenv(name, given.get(name, ""))
        (tmp_path / "log").unlink(missing_ok=True)
        code, _, calls = run(*arguments)
        # Except the checks of Python's version, and the module that makes the other calls.
        calls = [call for call in calls if not call.startswith(("-c ", "-m infra.operate.gitops"))]
        found = tmp_path / "checkout" / "out" / "page.md"
        return code, calls, found.read_text() if found.exists() else ""

    return make


@pytest.fixture
def github(monkeypatch):
    with fake.serve() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", fake.REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", fake.TOKEN)
        yield server


def test_a_runner_makes_a_plan_and_its_page(on_runner):
    look = "-m engine preview -s prod --save-plan out/plan.json"
    tell = "-m infra.operate.review -s prod out/plan.json --policy-pack infra/operate/policy"
    asked = ("plan", "STACK=prod", "POLICY=infra/operate/policy")
    assert on_runner(*asked, PAGE="a page") == (0, [look, tell], "a page")
    # A rule refuses the plan: its page says so.
    assert on_runner(*asked, PAGE="refused", REVIEW="1") == (2, [look, tell], "refused")
    # Without a plan an earlier page must not stay.
    failed = f"{MARK.format(stack='prod')}\n## prod: no plan, the preview failed\n"
    for answer in ({"PREVIEW": "1"}, {"REVIEW": "1"}):
        code, _, page = on_runner(*asked, **answer)
        assert code == 2
        assert page.startswith(failed)


def test_a_runner_settles_what_a_killed_one_left(on_runner):
    def calls(stack: str) -> list[str]:
        return on_runner("plan", f"STACK={stack}", "REFRESH=1", "UNLOCK=1", PAGE="a page")[1][:3]

    listed, mended = "-m engine stack ls", "-m engine refresh -s dev --yes --wait 10m"
    assert calls("dev") == ["-m engine cancel -s dev", listed, mended]
    new = "-m engine preview -s new --save-plan out/plan.json"
    assert calls("new") == ["-m engine cancel -s new", listed, new]


def test_a_runner_applies_a_plan_and_tries_the_cluster(on_runner):
    assert on_runner("apply", "STACK=prod", "POLICY=infra/operate/policy")[1] == [
        (
            "-m engine up -s prod --yes --wait 10m --plan out/plan.json"
            " --policy-pack infra/operate/policy"
        ),
        "submit -s prod cpu_example -- 2",
    ]


LISTED = "-m engine stack ls"


def ended(stack: str) -> list[str]:
    return [
        f"-m engine destroy -s {stack} --yes --wait 10m",
        f"-m engine stack rm -s {stack} --yes",
    ]


def test_a_pull_request_has_a_stack_while_it_is_open(on_runner, tmp_path):
    # Not in the backend of other stacks: code of the pull request may write there.
    assert on_runner("review-up", "NUMBER=8") == (2, [LISTED], "")
    assert on_runner("review-up", "NUMBER=8", "POLICY=infra/operate/policy", STACKS="pr-7")[1] == [
        LISTED,
        "-m engine up -s pr-8 --yes --wait 10m --refresh --policy-pack infra/operate/policy",
    ]
    settings = (ROOT / "Pulumi.review.yaml").read_text()
    assert (tmp_path / "checkout" / "Pulumi.pr-8.yaml").read_text() == settings
    assert on_runner("review-down", "NUMBER=8", STACKS="pr-7")[1] == [LISTED]  # it was never made
    assert on_runner("review-down", "NUMBER=7", STACKS="pr-7")[1] == [LISTED, *ended("pr-7")]
    assert on_runner("review-down") == (2, [], "")  # no NUMBER


def test_what_cannot_be_listed_is_not_taken_for_gone(on_runner):
    for arguments in (["review-sweep"], ["review-down", "NUMBER=7"], ["plan", "REFRESH=1"]):
        code, calls, _ = on_runner(*arguments, LIST="1")
        assert (code, calls) == (2, [LISTED])


@pytest.mark.parametrize("fails", ["", "request", "EXPIRED", "DESTROY"])
def test_a_stack_that_cannot_be_judged_or_ended_keeps_no_other(on_runner, github, fails):  # F49
    github.closed |= {7, 9}
    if fails == "request":
        github.unknown.add(8)
    mine = {number: review_stack(number) for number in "789"}
    answers = {"STACKS": " ".join(["dev", *mine.values()]), "PAST": mine["9"]}
    if fails.isupper():
        answers[fails] = "1"
    code, calls, _ = on_runner("review-sweep", **answers)
    assert code == (2 if fails else 0)
    assert calls[:2] == [LISTED, "-m infra.operate.expired"]
    calls = [call for call in calls[2:] if call != LISTED]
    if fails == "DESTROY":
        assert calls == [ended(mine["7"])[0], ended(mine["9"])[0]]
    else:
        assert calls == [*ended(mine["7"]), *ended(mine["9"])]


def test_a_runner_keeps_states_where_the_next_one_finds_them(on_runner, run, tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_KEY", "canary-key")
    code, said, _ = run("apply")
    assert (code, "canary-key" in said) == (0, False)
    key = tmp_path / ".ssh" / "trainyard-runner.pem"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("canary-key\n", 0o600)
    (tmp_path / "log").unlink()
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")
    for target in ("plan", "apply", "drift-issue", "reap-issue", "review-up", "review-down"):
        code, said, calls = run(target, "NUMBER=1")
        assert code == 2
        assert not [
            call for call in calls if not call.startswith(("-c ", "-m infra.operate.gitops ready"))
        ]
        whose = "REVIEW" if target.startswith("review") else "PULUMI"
        told = f"set the variable {whose}_BACKEND_URL and the secret {whose}_CONFIG_PASSPHRASE"
        assert f"error: PULUMI_BACKEND_URL is empty: {told}" in said


def test_jobs_of_pull_requests_reach_no_state_of_other_stacks():
    """They run its code with everything that they are given (F48)."""
    jobs = [
        job
        for file in (ROOT / ".github/workflows").glob("*.yml")
        for job in yaml.safe_load(file.read_text())["jobs"].values()
        if job.get("environment") == "review" or "make review-" in str(job)
    ]
    assert len(jobs) == 2
    for job in jobs:
        assert job["environment"] == "review"
        assert job["env"]["PULUMI_BACKEND_URL"] == "${{ vars.REVIEW_BACKEND_URL }}"
        given = str(job)
        roles = re.findall(r"'role-to-assume': '(.*?)'", given)
        passphrases = re.findall(r"'PULUMI_CONFIG_PASSPHRASE': '(.*?)'", given)
        assert roles == ["${{ vars.REVIEW_AWS_ROLE }}"]
        assert passphrases == ["${{ secrets.REVIEW_CONFIG_PASSPHRASE }}"]
        for name in (
            "vars.PULUMI_BACKEND_URL",
            "vars.AWS_ROLE",
            "secrets.PULUMI_CONFIG_PASSPHRASE",
        ):
            assert name not in given


def test_no_run_removes_the_lock_of_one_that_works():  # F51
    jobs = yaml.safe_load((ROOT / ".github/workflows/deploy.yml").read_text())["jobs"]
    unlocks = [name for name, job in jobs.items() if "UNLOCK=" in str(job["steps"])]
    assert unlocks == ["plan"]
    assert jobs["plan"]["concurrency"]["group"] == "stack-${{ inputs.stack }}"
    assert jobs["apply"]["concurrency"]["group"] == "stack-${{ matrix.stack }}"
