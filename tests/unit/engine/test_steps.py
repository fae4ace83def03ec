"""The engine treats a program as Pulumi does, shown on files in a folder."""

import re
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from engine import deletion, live, steps
from engine.errors import EngineError
from engine.providers import DynamicProvider, Live

REPLACED = {"replace": 1, "delete-replaced": 1}
MADE_FIRST = ["create a.1.json", "delete a.0.json"]


def test_up_creates_and_a_second_up_changes_nothing(stack):  # F20
    stack.declare(a={"text": "one"}, b={"text_of": "a"}, g={"group": True})
    assert stack.summary("up") == {"create": 5}  # the stack, a, b, g and g's file
    before = stack.state_file.read_bytes()
    assert stack.summary("up", "--expect-no-changes") == {}
    assert stack.summary("preview", "--expect-no-changes") == {}
    assert stack.summary("refresh", "--expect-no-changes") == {}
    assert stack.state_file.read_bytes() == before


def test_preview_plans_and_touches_nothing(stack):
    stack.declare(a={"text": "one"}, b={"text_of": "a"})
    assert stack.summary("preview") == {"create": 3}
    assert stack.files() == {}
    assert not stack.state_file.exists()
    stack.fails("preview", "--expect-no-changes")


def test_preview_of_a_delete_deletes_nothing(stack):
    stack.up(a={}, b={"text_of": "a"})
    stack.declare(a={})
    before = stack.state_file.read_bytes()
    assert stack.summary("preview") == {"delete": 1}
    assert list(stack.files()) == ["a.0.json", "b.0.json"]
    assert stack.state_file.read_bytes() == before


@pytest.mark.parametrize(
    ("more", "before", "after", "steps", "journal"),
    [
        ({}, {"text": "one"}, {"text": "two"}, {"update": 1}, []),
        ({}, {"kind": "plain"}, {"kind": "other"}, REPLACED, MADE_FIRST),
        ({"replace_on_changes": ["text"]}, {"text": "1"}, {"text": "2"}, REPLACED, MADE_FIRST),
        ({"ignore_changes": ["text"]}, {"text": "one"}, {"text": "two"}, {}, []),
    ],
)
def test_what_a_change_does(stack, more, before, after, steps, journal):
    stack.up(a=more | before)
    stack.declare(a=more | after)
    assert stack.summary("up") == steps
    assert stack.journal() == ["create a.0.json", *journal]
    text = (after if steps else before).get("text", "")
    assert stack.resource("a")["inputs"]["text"] == text
    assert list(stack.files().values()) == [text]


def test_delete_before_replace_takes_dependents_along(stack):
    stack.up(a={"kind": "exclusive-1"}, b={"kind_of": "a"})
    stack.up(a={"kind": "exclusive-2"}, b={"kind_of": "a"})
    assert stack.journal()[2:] == [
        "delete b.0.json",
        "delete a.0.json",
        "create a.0.json",
        "create b.0.json",
    ]


def test_ignore_changes_wins_over_drift(stack):
    stack.up(a={"text": "one", "ignore_changes": ["text"]})
    (stack.folder / "a.0.json").write_text('{"text": "two", "token": null, "kind": "plain"}')
    stack.up("--refresh")
    assert stack.summary("up", "--expect-no-changes") == {}
    assert stack.files() == {"a.0.json": "two"}


def test_what_is_no_longer_declared_goes_after_its_dependents(stack):
    stack.up(a={}, b={"text_of": "a"}, c={"after": "b"})
    stack.declare()
    assert stack.summary("up") == {"delete": 4}  # and the default provider
    assert stack.journal()[3:] == ["delete c.0.json", "delete b.0.json", "delete a.0.json"]


def test_destroy_leaves_nothing(stack):  # F20
    stack.up(a={}, b={"text_of": "a"}, g={"group": True})
    stack.up("--refresh")
    assert stack.run("destroy").code == 0
    assert stack.files() == {}
    assert stack.resources() == []
    assert stack.run("stack", "rm", "--yes").code == 0
    assert not stack.state_file.exists()


def test_what_a_person_protected_is_neither_deleted_nor_replaced(stack):
    stack.up(a={"text": "one"})
    stack.change_entry("a", protect=True, aliases=["urn:former"])  # pulumi state protect
    stack.declare(a={"text": "two"})
    assert stack.summary("up") == {"update": 1}
    result = stack.fails("destroy")
    assert "protected in the state; to end that: pulumi state unprotect" in result.out
    stack.declare(a={"kind": "other"})
    assert "replaces it, but it is protected" in stack.run("up").out
    assert stack.files() == {"a.0.json": "two"}
    assert stack.resource("a")["aliases"] == ["urn:former"]


def test_what_the_cli_made_but_did_not_bring_up_is_settled_by_the_next_up(stack):
    stack.up(a={"text": "one"})
    stack.change_entry("a", initErrors=["it is not up"])
    assert stack.summary("up") == {"update": 1}
    assert "initErrors" not in stack.resource("a")


def test_retain_on_delete_and_deleted_with_skip_the_provider(stack):
    stack.up(a={}, b={"deleted_with": "a"}, c={"retain_on_delete": True})
    assert stack.run("destroy").code == 0
    assert stack.files() == {"b.0.json": "", "c.0.json": ""}
    assert stack.resources() == []


def test_a_replaced_host_keeps_what_is_deleted_with_it(stack):
    stack.up(a={"kind": "plain"}, b={"deleted_with": "a"})
    stack.declare(a={"kind": "other"}, b={"deleted_with": "a"})
    assert stack.summary("up") == {"replace": 1, "delete-replaced": 1}
    assert stack.resource("b")["deletedWith"] == stack.resource("a")["urn"]


def test_refresh_sees_drift_and_up_mends_it(stack):  # F8
    stack.up(a={"text": "one"}, b={"text": "two"})
    (stack.folder / "a.0.json").write_text('{"text": "tampered", "token": null, "kind": "plain"}')
    (stack.folder / "b.0.json").unlink()
    stack.fails("refresh", "--expect-no-changes")
    assert stack.summary("up") == {"update": 1, "create": 1}
    assert stack.files() == {"a.0.json": "one", "b.0.json": "two"}


def test_refresh_drops_what_others_depend_on(stack):  # F8
    stack.up(a={}, b={"text_of": "a"}, c={"after": "a"})
    (stack.folder / "a.0.json").unlink()
    assert stack.run("refresh").code == 0
    assert stack.resource("b")["propertyDependencies"]["text"] == []
    assert "dependencies" not in stack.resource("c") or stack.resource("c")["dependencies"] == []
    assert stack.summary("up") == {"create": 1}
    stack.up("--expect-no-changes")
    (stack.folder / "a.0.json").unlink()
    assert stack.run("refresh").code == 0
    assert stack.run("destroy").code == 0
    assert stack.files() == {}


def test_a_failure_keeps_what_was_made_and_the_next_up_makes_the_rest(stack):  # F17
    stack.declare(a={"text": "one"}, b={"text": "fail", "after": "a"}, c={"text_of": "b"})
    assert "b: the disk said no" in stack.fails("up").out
    assert stack.files() == {"a.0.json": "one"}
    stack.declare(a={"text": "one"}, b={"text": "ok", "after": "a"}, c={"text_of": "b"})
    assert stack.summary("up") == {"create": 2}
    assert stack.journal().count("create a.0.json") == 1


def test_a_delete_that_fails_is_told_and_keeps_what_it_needs(stack):  # F9 F17
    stack.up(a={}, b={"text_of": "a"}, c={"after": "b"}, d={})
    (stack.folder / "b.0.json").unlink()
    (stack.folder / "b.0.json").mkdir()  # a folder, which cannot be deleted as a file
    failed = stack.fails("destroy")
    assert re.search(r"error: .*::b: .*Is a directory", failed.out)
    assert "destroy of dev failed" in failed.out
    assert "depend on one another" not in failed.out
    left = {entry["urn"].rpartition("::")[2] for entry in stack.resources()}
    assert {"files-dev", "default", "a", "b"} <= left
    assert "c" not in left
    assert (stack.folder / "a.0.json").exists()
    (stack.folder / "b.0.json").rmdir()
    assert stack.run("destroy").code == 0
    assert stack.files() == {}
    assert stack.resources() == []


def test_an_error_without_a_text_is_told_by_its_name(stack, monkeypatch):
    stack.up(a={})
    monkeypatch.setattr(DynamicProvider, "delete", Mock(side_effect=TimeoutError))
    failed = stack.fails("destroy")
    assert re.search(r"error: .*::a: TimeoutError\(\)", failed.out)


def test_a_replacement_whose_create_fails_keeps_its_place(stack):  # F17
    stack.up(a={"kind": "exclusive-1"}, b={"text_of": "a"})
    stack.declare(a={"kind": "exclusive-2", "text": "fail"}, b={"text_of": "a"})
    stack.fails("up")
    assert stack.resource("a")["pendingReplacement"] is True
    assert stack.resource("b")["dependencies"] == [stack.resource("a")["urn"]]
    stack.up(a={"kind": "exclusive-2"}, b={"text_of": "a"})
    assert stack.files() == {"a.0.json": "", "b.0.json": f"{stack.folder}/a.0.json"}
    assert "pendingReplacement" not in stack.resource("a")


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_old_half_does_not_take_along_what_has_its_name_now(stack, interrupted):  # F12
    stack.up(a={"kind": "one"})
    (stack.folder / "a.0.json").unlink()
    (stack.folder / "a.0.json").mkdir()  # a folder, which cannot be deleted as a file
    stack.declare(a={"kind": "two"})
    stack.fails("up")
    (stack.folder / "a.0.json").rmdir()
    if interrupted:  # killed when the file was gone, and the state did not know yet
        with stack.edited() as latest:
            (old,) = (entry for entry in latest["resources"] if entry.get("delete"))
            latest["pending_operations"] = [{"resource": old, "type": "deleting"}]
    printed = stack.up(a={"kind": "exclusive", "text": "new"}).out
    assert printed.count("delete-replaced done") == (1 if interrupted else 2)
    assert stack.files() == {"a.0.json": "new"}
    assert [entry["id"] for entry in stack.resources() if entry["urn"].endswith("::a")] == [
        "a.0.json"
    ]


def test_what_a_replacement_has_deleted_already_is_only_forgotten(stack):  # F17
    stack.up(a={"kind": "exclusive-1"})
    stack.declare(a={"kind": "exclusive-2", "text": "fail"})
    stack.fails("up")
    deleted = stack.journal()
    stack.declare()
    stack.up()
    assert stack.journal() == deleted
    assert not any(entry["urn"].endswith("::a") for entry in stack.resources())


def test_resources_that_depend_on_one_another_are_told_and_left():
    failures = []
    context = SimpleNamespace(
        stopping=threading.Event(), fail=lambda label, error: failures.append(str(error))
    )
    entries = [{"urn": "a", "dependencies": ["b"]}, {"urn": "b", "dependencies": ["a"]}]
    deletion.delete(context, entries)
    assert failures == ["these depend on one another: a, b"]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ({"text": "bad"}, ["a: text: must not be 'bad'"]),
        (
            {"import": "a.0.json"},
            ["does not know the option import_ (of a): run it with the pulumi CLI"],
        ),
        (
            "import pulumi\npulumi.CustomResource('cloud:index:Thing', 'x', {})\n",
            ["resources of the package 'cloud'"],
        ),
        ("x = 1\nx.nothing\n", ["line 2", "AttributeError"]),
        (
            "import pulumi\nfor _ in range(2):\n    pulumi.ComponentResource('a:b:C', 'x')\n",
            ["registered twice"],
        ),
    ],
)
def test_what_is_wrong_in_a_program_is_told(stack, program, told):
    if isinstance(program, str):
        (stack.project / "__main__.py").write_text(program)
    else:
        stack.declare(a=program)
    printed = stack.fails("up").out
    assert [text for text in told if text not in printed] == []


@pytest.mark.parametrize(
    ("command", "how", "told"),
    [
        *(
            (command, {"stack": "nowhere"}, ["no stack named 'nowhere'", "there: dev"])
            for command in ("output", "refresh", "destroy")
        ),
        ("up", {"stack": "typo"}, ["Pulumi.typo.yaml"]),
        ("up", {"yes": False}, ["--yes is needed"]),
    ],
)
def test_a_wrong_command_is_told(stack, command, how, told):
    stack.up(a={})
    said = stack.refuses(command, **how).err
    assert [text for text in told if text not in said] == []


@pytest.mark.parametrize(("answer", "made"), [("y", {"a.0.json": ""}), ("n", {})])
def test_somebody_sees_the_plan_and_is_asked(stack, monkeypatch, answer, made):
    stack.declare(a={})
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    result = stack.run("up", yes=False)
    assert "a create planned" in result.out
    assert stack.files() == made
    assert result.code == (0 if made else 1)


def test_what_a_killed_run_had_asked_for_may_come_after_the_look():  # F12
    """Like a network that Docker made after the next `up` had found none."""
    late = Live(id="n1", outputs={})
    there = iter([None, late, late])
    provider = SimpleNamespace(
        create=Mock(side_effect=EngineError("the network already exists")),
        find=lambda _inputs: next(there),
    )
    context = SimpleNamespace(
        unsettled=set(),
        provider=lambda _type, _reference: provider,
        journal=SimpleNamespace(old=lambda _urns: None),
    )
    entry = {"urn": "urn:network", "type": "t", "inputs": {}, "provider": ""}
    live._recover_create(context, entry)
    assert steps._made(context, provider, entry) is late
    with pytest.raises(EngineError, match="already exists"):  # somebody else's
        steps._made(context, provider, entry | {"urn": "urn:other"})
