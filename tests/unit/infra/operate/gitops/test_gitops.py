"""The stacks that a change concerns, and the comments and issues of a repository."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from infra.operate.gitops import GitopsError, changed, github, runner
from infra.operate.gitops import __main__ as command
from infra.operate.gitops.github import GitHub
from infra.operate.review.page import MARK
from tests.fakes import github as fake
from tests.git import git as git_in
from tests.waiting import wait_for
from trainyard.access.terminal import CONTROL

STACKS = ["staging", "prod"]
PAGE = "<!-- trainyard: preview of prod -->\n## prod: 1 to create\n"

ENGINE = """#!/bin/sh
case "$*" in
*"stack ls") echo pr-7 ;;
*destroy*) sleep 60 & trap 'sleep 0.5; touch ended; kill $!; exit 1' INT TERM; touch begun; wait ;;
*) touch removed ;;
esac
"""


@pytest.fixture
def there(monkeypatch) -> Iterator[fake.GitHub]:
    with fake.serve() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", fake.REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", fake.TOKEN)
        yield server


@pytest.fixture
def here(there) -> GitHub:
    assert there.url
    return GitHub()


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["Pulumi.prod.yaml"], ["prod"]),
        (["Pulumi.prod.yaml", "docs/train.md", "tests/test_x.py"], ["prod"]),
        (["README.md", ".github/workflows/test.yml"], []),
        (["Pulumi.gone.yaml"], []),
        (["Pulumi.yaml"], STACKS),
        (["infra/settings/config.py"], STACKS),
        (["requirements/base.txt"], STACKS),
        (["docker/node.py", "Pulumi.prod.yaml"], STACKS),
    ],
)
def test_a_stack_is_concerned_by_its_settings_and_by_all_code(files, found):
    assert changed.affected_stacks(files, STACKS) == found


def test_only_the_commits_of_the_branch_count(tmp_path):
    git = partial(git_in, tmp_path)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "--quiet", "--message", name)

    git("init", "--quiet", "--initial-branch", "main")
    commit("Pulumi.yaml")
    git("checkout", "--quiet", "-b", "change")
    commit("Pulumi.prod.yaml")
    git("checkout", "--quiet", "main")
    commit("infra.py")
    git("checkout", "--quiet", "change")
    assert changed.since("main", STACKS, tmp_path) == ["prod"]
    git("checkout", "--quiet", "-b", "moved", "main")
    (tmp_path / "docs").mkdir()
    git("mv", "infra.py", "docs/infra.py")
    git("commit", "--quiet", "--message", "moved")
    assert changed.since("main", STACKS, tmp_path) == STACKS
    git("checkout", "--quiet", "change")
    with pytest.raises(GitopsError, match=r"cannot compare with 'nothing'.*fetch-depth"):
        changed.since("nothing", STACKS, tmp_path)


def test_a_page_is_one_comment_that_is_updated(there, here):
    for number in range(github.PAGE_ITEMS):  # ours is on the second page
        there.add_comment(3, f"comment {number}", "somebody")
    there.add_comment(3, PAGE, "somebody")  # a stranger's, with our mark
    assert here.comment(3, PAGE) == "created"
    assert here.comment(3, PAGE.replace("1 to", "2 to")) == "updated"
    assert here.comment(3, PAGE.replace("prod", "staging")) == "created"
    ours = [each["body"] for each in there.comments[3] if each["user"]["login"] == fake.BOT]
    assert ours == [PAGE.replace("1 to", "2 to"), PAGE.replace("prod", "staging")]
    assert here.comment(4, PAGE + "x" * 70_000) == "created"
    (long,) = there.comments[4]
    assert len(long["body"]) <= 65_536
    assert "cut here" in long["body"]


def test_who_writes_with_another_token_updates_their_own_comment(there, monkeypatch):
    there.add_comment(3, PAGE, "our-runner")
    monkeypatch.setenv("GITHUB_LOGIN", "our-runner")
    assert GitHub().comment(3, PAGE.replace("1 to", "2 to")) == "updated"
    assert len(there.comments[3]) == 1


def test_a_stack_that_is_no_longer_changed_has_no_page_of_a_plan(there, capsys):
    there.add_comment(5, MARK.format(stack="prod") + "\n## prod: 1 to delete\n")
    there.add_comment(5, "thanks", "somebody")
    # The commit itself is the base: nothing differs.
    assert command.main(["changed", "--base", "HEAD", "--pull", "5", *STACKS]) == 0
    assert capsys.readouterr().out == "[]\n"
    found = [each["body"] for each in there.comments[5]]
    assert found == [command.SAME.format(stack="prod"), "thanks"]


def test_an_issue_is_open_while_there_is_something_to_tell(there, here):
    assert here.report("Drift of prod", "none", found=False) == "none"
    assert here.report("Drift of prod", "a worker", found=True) == "created"
    assert here.report("Drift of prod", "two workers", found=True) == "updated"
    assert here.report("Drift of staging", "a worker", found=True) == "created"
    assert here.report("Drift of prod", "all is well", found=False) == "closed"
    assert here.report("Drift of prod", "a worker", found=True) == "created"
    states = [(each["title"], each["state"], each["body"]) for each in there.issues]
    assert states == [
        ("Drift of prod", "closed", "two workers"),
        ("Drift of staging", "open", "a worker"),
        ("Drift of prod", "open", "a worker"),
    ]
    assert there.comments[there.issues[0]["number"]][0]["body"] == "all is well"


def test_the_plan_is_the_newest_of_the_pull_request_and_of_no_fork(there, here):
    there.merged["abc"] = 12
    with pytest.raises(GitopsError, match="pull request 12 has no artifact plan-prod-12: run"):
        here.run_with("plan-prod", "abc")
    there.add_artifact("plan-prod-12", 1)
    there.add_artifact("plan-prod-12", 2)
    there.add_artifact("plan-prod-12", 3, of=666)
    there.add_artifact("plan-prod-12", 4, expired=True)
    there.add_artifact("plan-prod-13", 5)
    assert here.run_with("plan-prod", "abc") == (2, "plan-prod-12")
    with pytest.raises(GitopsError, match=r"commit def has no pull request.*by hand"):
        here.run_with("plan-prod", "def")


@pytest.fixture
def engine(monkeypatch) -> dict[str, list[str]]:
    """The output of programs that the runner starts, and the arguments of the others."""
    programs: dict[str, list[str]] = {"called": []}

    def run(*command: str, stdout: int | None = None) -> str:
        if stdout is not None:
            return "".join(f"{line}\n" for line in programs[" ".join(command)])
        programs["called"].append(" ".join(command))
        return ""

    monkeypatch.setattr(runner, "_run", run)
    monkeypatch.setattr(shutil, "copy", lambda *_: None)
    return programs


def test_a_repository_ends_the_stacks_of_its_own_pull_requests_only(  # F49
    there, engine, monkeypatch, capsys
):
    def of(number: int, repository: str) -> str:
        monkeypatch.setenv("GITHUB_REPOSITORY", repository)
        return runner.review_stack(str(number))

    # Two repositories with states in one backend: they have requests of the same numbers.
    theirs = [of(number, "another/cluster") for number in (7, 8)]
    assert of(7, "") == "pr-7"  # by hand
    ours = [of(number, "Team/Cluster") for number in (7, 8, 9, 40, 41)]
    assert ours == [of(number, fake.REPOSITORY) for number in (7, 8, 9, 40, 41)]
    assert re.fullmatch(r"pr-7-[0-9a-f]{8}", ours[0])
    there.closed |= {7, 40}
    there.unknown.add(9)
    engine["engine stack ls"] = ["dev", "pr-7", f"my-{ours[0]}", *theirs, *ours]
    engine["infra.operate.expired"] = [ours[4], theirs[1]]
    # A request that GitHub does not know keeps no other.
    assert command.main(["sweep"]) == 1
    assert [call.split()[3] for call in engine["called"] if "destroy" in call] == [
        *(ours[0], ours[3], ours[4])
    ]
    assert capsys.readouterr().err == (
        f"error: {ours[2]} is kept: GitHub refuses GET pulls/9 (404): check the number, and that "
        "the job may read it (permissions)\n"
        "error: not all stacks could be judged and ended: see above\n"
    )


@pytest.mark.parametrize(
    ("listed", "code"),
    [
        ("", 0),
        ("pr-7 pr-12-0a1b2c3d", 0),
        ("pr-7 prod pr-8", 1),
        ("pr-7-mine", 1),
        ("my-pr-7", 1),
    ],
)
def test_stacks_of_pull_requests_share_no_backend_with_others(listed, code, engine, capsys):  # F48
    engine["engine stack ls"] = listed.split()
    assert command.main(["up", "8"]) == code
    assert len(engine["called"]) == 1 - code
    err = capsys.readouterr().err
    assert ("REVIEW_BACKEND_URL and REVIEW_AWS_ROLE" in err) == bool(code)
    assert "pr-8" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_engine_ends_in_its_own_time_before_a_signalled_runner(tmp_path, number):
    (tmp_path / "Pulumi.review.yaml").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(ENGINE)
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "infra.operate.gitops", "down", "7"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[5])},
        start_new_session=True,
    ) as process:
        wait_for("the engine", (tmp_path / "begun").exists)
        # A terminal sends its Ctrl-C to all programs, `make` a SIGTERM to those that it started.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        assert process.wait(30) != 0
    assert sorted(path.name for path in tmp_path.iterdir() if not path.suffix) == [
        *(".venv", "begun", "ended")
    ]


def test_what_a_command_says_stays_a_block_of_an_issue(there, capsys):  # F39
    said = "`" * 5 + "\n@octocat\n# Approved\n\x1b]0;had\x07"
    assert command.main(["issue", "Drift", "sh", "-c", 'printf "%s" "$0"; exit 2', said]) == 0
    (issue,) = there.issues
    kinds = [token.type for token in MarkdownIt("commonmark").parse(issue["body"])]
    assert kinds == ["paragraph_open", "inline", "paragraph_close", "fence"]
    assert not CONTROL.search(issue["body"] + "".join(capsys.readouterr()))


def test_a_command_that_fails_is_an_issue(there, capfd):
    assert command.main(["issue", "Drift", "sh", "-c", "echo a worker is gone; exit 2"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("issue created\n", "a worker is gone\n")
    (issue,) = there.issues
    assert "ended with code 2" in issue["body"]
    assert "a worker is gone" in issue["body"]
    # One that found drift is deployed again if the repository asks for it; one that failed is not.
    repair = ("issue", "--repair", "test", "Drift", "sh", "-c")
    assert command.main([*repair, "exit 1"]) == 0
    assert there.started == []
    assert command.main([*repair, "exit 2"]) == 0
    assert there.started == [("deploy.yml", "main", {"stack": "test"})]
    assert "deploy.yml begins to repair test" in capfd.readouterr().out
    assert command.main(["issue", "Drift", "true"]) == 0
    assert issue["state"] == "closed"
    assert command.main(["issue", "Drift", "no-such-command"]) == 1
    assert "cannot read or start no-such-command" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("403", "GitHub refuses POST issues/3/comments (403): give the job's token the right"),
        ("401", "GitHub refuses GET issues/3/comments (401): give"),
        ("404", "GitHub refuses GET issues/3/comments (404): check the number"),
        ("gone", "GitHub does not answer GET issues/3/comments"),
        ("unset", "GITHUB_TOKEN not set: run this in a workflow"),
        ("page", "cannot read or start nowhere (No such file or directory)"),
        ("mark", "the page begins with '## prod', not with a mark"),
    ],
)
def test_what_goes_wrong_is_one_message(broken, said, there, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    if broken == "403":
        there.forbidden.add("POST")
    if broken == "401":
        monkeypatch.setenv("GITHUB_TOKEN", "another")
    if broken == "404":
        monkeypatch.setenv("GITHUB_REPOSITORY", "another/one")
    if broken == "gone":
        monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    if broken == "mark":
        page.write_text("## prod\n")
    if broken == "unset":
        monkeypatch.setenv("GITHUB_TOKEN", "")
    assert command.main(["comment", "3", "nowhere" if broken == "page" else str(page)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
