"""A plan: either the announced steps are done, or none."""

import json
import shutil
from functools import partial

import pytest

from engine.context import Context
from tests.git import git as git_in


@pytest.fixture
def planned(stack, tmp_path):
    """Save a plan of the declared resources, and return its file."""

    def save(*arguments):
        path = tmp_path / "plan.json"
        result = stack.run("preview", "--save-plan", str(path), *arguments)
        assert result.code == 0, result.out + result.err
        return path

    return save


def _refused(stack, path, *told, stack_name="dev"):
    """Nothing is touched, and the message says why."""
    said = stack.refuses("up", "--plan", str(path), stack=stack_name).err
    assert [text for text in told if text not in said] == []


def test_what_was_planned_is_done(stack, planned):
    stack.declare(a={"text": "one"}, b={"text_of": "a"}, c={}, d={})
    assert stack.run("up", "--plan", str(planned())).code == 0
    stack.declare(a={"text": "two"}, b={"text_of": "a"}, c={"kind": "other"}, e={})
    path = planned()
    assert stack.summary("up", "--plan", str(path)) == {
        "create": 1,
        "update": 1,
        "replace": 1,
        "delete": 1,
        "delete-replaced": 1,
    }
    # It was for the state at that time.
    _refused(
        stack, path, "made for another state; look at a new one: `", "train preview --plan FILE`"
    )


def test_a_plan_may_be_a_link(stack, planned, tmp_path):  # F75
    (tmp_path / "plan.json").symlink_to("kept.json")
    stack.declare(a={})
    assert planned().is_symlink()
    assert stack.run("up", "--plan", str(tmp_path / "kept.json")).code == 0


def test_what_is_not_planned_is_refused_by_name_before_anything_is_touched(
    stack, planned, monkeypatch
):
    stack.up(a={"text": "one"}, b={}, c={})
    stack.declare(a={"text": "two"}, b={})
    path = planned()
    # As if the program made a request, and got another answer than in the preview.
    monkeypatch.setattr("engine.plan.binding", lambda *_: _place_of(path, stack))
    stack.declare(a={"text": "three"}, b={"kind": "other"}, d={})
    _refused(
        stack,
        path,
        "the plan does not hold: ",
        "update of a with another text",
        "replace of b",
        "delete-replaced of b",
        "create of d",
    )
    stack.declare(a={"text": "two"}, b={}, c={})
    assert stack.run("up", "--plan", str(path)).code == 0  # less than was planned


def _place_of(path, stack):
    from engine import plan
    from engine.crypto import Crypter
    from engine.values import decrypt

    document = json.loads(path.read_text())
    cipher = Crypter("correct horse", document["salt"])
    body = decrypt(document["plan"], cipher.decrypt)
    assert body["version"] == plan.VERSION
    return {key: body[key] for key in ("stack", "commit", "tree", "settings", "state")}


def test_what_comes_up_only_while_it_is_done_is_refused_too(stack, planned, monkeypatch):
    stack.declare(a={"text": "one"})
    path = planned()
    begun = Context.step

    def other(self, operation, urn, olds, inputs):
        return begun(self, operation, urn, olds, inputs | ({} if self.dry_run else {"text": "x"}))

    monkeypatch.setattr(Context, "step", other)
    result = stack.fails("up", "--plan", str(path))
    assert "the plan does not hold: create of a with another text" in result.out
    assert stack.files() == {}


def test_a_plan_holds_no_secret_in_clear(stack, planned):
    stack.declare(a={"token": "canary-token"})
    path = planned()
    assert "canary" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    settings = stack.settings.read_text()
    stack.declare(a={"token": "canary-other"})
    _refused(stack, path, "made for another settings")
    stack.settings.write_text(settings)
    assert stack.run("up", "--plan", str(path)).code == 0


def test_a_plan_of_another_stack(stack, planned):
    stack.declare(a={})
    path = planned()
    shutil.copy(stack.settings, stack.settings.with_name("Pulumi.other.yaml"))
    _refused(stack, path, "another stack: files/dev, and here files/other", stack_name="other")


def test_a_plan_of_another_commit(stack, planned):
    git = partial(git_in, stack.project)
    stack.declare(a={})
    git("init", "--quiet")
    result = stack.fails("preview", "--save-plan", str(stack.root / "plan.json"))
    assert "git does not tell it: fatal: ambiguous argument 'HEAD'" in result.err
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    path = planned()
    program = stack.project / "__main__.py"
    program.write_text(f"{program.read_text()}# slipped in\n")
    _refused(stack, path, "the plan", "made for another commit", "with changes")
    git("commit", "--quiet", "--all", "--message", "two")
    _refused(stack, path, "made for another commit")
    git("checkout", "--quiet", "HEAD~1")
    (stack.project / "new.py").write_text("# not added yet")
    _refused(stack, path, "made for another commit", "with changes")
    (stack.project / "new.py").unlink()
    git("commit", "--quiet", "--allow-empty", "--message", "merged: the same files")
    assert stack.run("up", "--plan", str(path)).code == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"create"', '"delete"'),
        lambda text: json.dumps({"manifest": {}, "resourcePlans": {}}),  # as the CLI's
        lambda text: json.dumps(json.loads(text) | {"salt": "v1:x"}),
    ],
)
def test_a_torn_changed_or_foreign_plan(stack, planned, spoil):
    stack.declare(a={})
    path = planned()
    path.write_text(spoil(path.read_text()))
    _refused(stack, path, "is not a whole plan of this engine and passphrase")


def test_a_plan_of_another_passphrase(stack, planned, monkeypatch):
    stack.declare(a={})
    path = planned()
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "other")
    _refused(stack, path, "is not a whole plan of this engine and passphrase")


def test_no_plan_where_there_is_none_to_make_or_to_read(stack, tmp_path):
    stack.declare(a={})
    _refused(stack, tmp_path / "none.json", "none.json cannot be read (No such file or directory)")
    result = stack.fails("preview", "--save-plan", str(tmp_path / "no" / "plan.json"))
    assert "plan.json cannot be written (No such file or directory)" in result.err
    stack.declare(a={"text": "bad"})
    result = stack.fails("preview", "--save-plan", str(tmp_path / "plan.json"))
    assert not (tmp_path / "plan.json").exists()


def test_a_plan_is_not_made_of_what_was_interrupted(stack, tmp_path):
    stack.up(a={})
    with stack.edited() as latest:
        latest["pending_operations"] = [{"resource": latest["resources"][-1], "type": "updating"}]
    result = stack.fails("preview", "--save-plan", str(tmp_path / "plan.json"))
    assert "a plan cannot contain interrupted steps: run refresh first" in result.err
