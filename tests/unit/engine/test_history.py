"""The history of a stack: each operation is noted, with its commit and its run."""

import json

import pytest

from engine import history
from tests.git import git


@pytest.fixture
def noted(stack):
    def read():
        return json.loads(stack.run("stack", "history", "--json").out)

    return read


def test_each_operation_is_noted_with_its_commit_and_run(stack, noted, monkeypatch):
    for name in ("GITHUB_SERVER_URL", "CI_JOB_URL", "BUILD_URL"):
        monkeypatch.delenv(name, raising=False)
    git(stack.project, "init", "--quiet")
    git(stack.project, "add", "-A")
    git(stack.project, "commit", "--quiet", "-m", "A cluster for the course")
    stack.up(a={"text": "1"})
    monkeypatch.setenv("BUILD_URL", "https://ci.example/7")
    git(stack.project, "commit", "--quiet", "-am", "Another file")
    stack.run("preview")
    stack.declare(a={"text": "1"}, b={"text": "fail"})
    stack.fails("up")
    stack.run("destroy")
    done = noted()
    assert [(each["kind"], each["result"]) for each in done] == [
        ("destroy", "succeeded"),
        ("update", "failed"),
        ("update", "succeeded"),
    ]
    assert done[2]["resourceChanges"]["create"] >= 1
    first, last = done[2]["environment"], done[0]["environment"]
    assert (done[2]["message"], first["git.dirty"]) == ("A cluster for the course", "true")
    assert "ci.build.url" not in first
    assert last["ci.build.url"] == "https://ci.example/7"
    assert first["git.head"] != last["git.head"]
    assert done[0]["startTime"] <= done[0]["endTime"]
    lines = stack.run("stack", "history").out.splitlines()
    assert last["git.head"][:10] in lines[0]
    assert "https://ci.example/7" in lines[0]
    assert "failed" in lines[1]


def test_a_project_without_git_and_files_of_others_are_no_fault(stack, noted, tmp_path):
    stack.up()
    folder = history.folder(tmp_path / "backend" / ".pulumi", "files", "dev")
    (folder / "dev-1.history.json").write_text("[")
    (folder / "dev-2.checkpoint.json").write_text("{}")
    assert len(noted()) == 1
    assert noted()[0]["environment"].keys() & {"git.head", "git.dirty"} == set()


def test_only_the_newest_are_kept(stack, monkeypatch):
    monkeypatch.setattr(history, "KEPT", 2)
    for _ in range(3):
        stack.up()
    assert len(stack.run("stack", "history").out.splitlines()) == 2
