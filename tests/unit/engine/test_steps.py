"""The engine treats a program as Pulumi does, shown on files in a folder."""

import json
import re
import threading
from types import SimpleNamespace

import pytest

from engine import deletion, live, steps
from engine.errors import EngineError
from engine.providers import DynamicProvider, Live


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
    assert stack.run("preview", "--expect-no-changes").code == 1


def test_preview_of_a_delete_deletes_nothing(stack):
    stack.declare(a={}, b={"text_of": "a"})
    stack.up()
    stack.declare(a={})
    before = stack.state_file.read_bytes()
    assert stack.summary("preview") == {"delete": 1}
    assert list(stack.files()) == ["a.0.json", "b.0.json"]
    assert stack.state_file.read_bytes() == before


def test_update_keeps_the_resource(stack):
    stack.declare(a={"text": "one"})
    stack.up()
    stack.declare(a={"text": "two"})
    assert stack.summary("up") == {"update": 1}
    assert stack.files() == {"a.0.json": "two"}
    assert stack.journal() == ["create a.0.json"]


def test_replacement_creates_before_it_deletes(stack):
    stack.declare(a={"kind": "plain"})
    stack.up()
    stack.declare(a={"kind": "other"})
    assert stack.summary("up") == {"replace": 1, "delete-replaced": 1}
    assert stack.journal() == ["create a.0.json", "create a.1.json", "delete a.0.json"]


def test_delete_before_replace_takes_dependents_along(stack):
    stack.declare(a={"kind": "exclusive-1"}, b={"kind_of": "a"})
    stack.up()
    stack.declare(a={"kind": "exclusive-2"}, b={"kind_of": "a"})
    stack.up()
    assert stack.journal()[2:] == [
        "delete b.0.json",
        "delete a.0.json",
        "create a.0.json",
        "create b.0.json",
    ]


def test_replace_on_changes_forces_a_replacement(stack):
    stack.declare(a={"text": "one", "replace_on_changes": ["text"]})
    stack.up()
    stack.declare(a={"text": "two", "replace_on_changes": ["text"]})
    assert stack.summary("up") == {"replace": 1, "delete-replaced": 1}


def test_ignore_changes_keeps_the_old_input(stack):
    stack.declare(a={"text": "one", "ignore_changes": ["text"]})
    stack.up()
    stack.declare(a={"text": "two", "ignore_changes": ["text"]})
    assert stack.summary("up") == {}
    assert stack.files() == {"a.0.json": "one"}


def test_ignore_changes_wins_over_drift(stack):
    stack.declare(a={"text": "one", "ignore_changes": ["text"]})
    stack.up()
    (stack.folder / "a.0.json").write_text('{"text": "two", "token": null, "kind": "plain"}')
    stack.up("--refresh")
    assert stack.summary("up", "--expect-no-changes") == {}
    assert stack.files() == {"a.0.json": "two"}


def test_what_is_no_longer_declared_goes_after_its_dependents(stack):
    stack.declare(a={}, b={"text_of": "a"}, c={"after": "b"})
    stack.up()
    stack.declare()
    assert stack.summary("up") == {"delete": 4}  # and the default provider
    assert stack.journal()[3:] == ["delete c.0.json", "delete b.0.json", "delete a.0.json"]


def test_destroy_leaves_nothing(stack):  # F20
    stack.declare(a={}, b={"text_of": "a"}, g={"group": True})
    stack.up()
    stack.up("--refresh")
    assert stack.run("destroy").code == 0
    assert stack.files() == {}
    assert stack.resources() == []
    assert stack.run("stack", "rm", "--yes").code == 0
    assert not stack.state_file.exists()


def test_what_a_person_protected_is_neither_deleted_nor_replaced(stack):
    stack.declare(a={"text": "one"})
    stack.up()
    stack.change_entry("a", protect=True, aliases=["urn:former"])  # pulumi state protect
    stack.declare(a={"text": "two"})
    assert stack.summary("up") == {"update": 1}
    destroyed = stack.run("destroy")
    assert destroyed.code == 1
    assert "protected in the state; to end that: pulumi state unprotect" in destroyed.out
    stack.declare(a={"kind": "other"})
    assert "replaces it, but it is protected" in stack.run("up").out
    assert stack.files() == {"a.0.json": "two"}
    assert stack.resource("a")["aliases"] == ["urn:former"]


def test_what_the_cli_made_but_did_not_bring_up_is_settled_by_the_next_up(stack):
    stack.declare(a={"text": "one"})
    stack.up()
    stack.change_entry("a", initErrors=["it is not up"])
    assert stack.summary("up") == {"update": 1}
    assert "initErrors" not in stack.resource("a")


def test_retain_on_delete_forgets_without_deleting(stack):
    stack.declare(a={"retain_on_delete": True})
    stack.up()
    assert stack.run("destroy").code == 0
    assert stack.files() == {"a.0.json": ""}


def test_deleted_with_skips_the_provider(stack):
    stack.declare(a={}, b={"deleted_with": "a"})
    stack.up()
    assert stack.run("destroy").code == 0
    assert stack.files() == {"b.0.json": ""}


def test_a_replaced_host_keeps_what_is_deleted_with_it(stack):
    stack.declare(a={"kind": "plain"}, b={"deleted_with": "a"})
    stack.up()
    stack.declare(a={"kind": "other"}, b={"deleted_with": "a"})
    assert stack.summary("up") == {"replace": 1, "delete-replaced": 1}
    assert stack.resource("b")["deletedWith"] == stack.resource("a")["urn"]


def test_refresh_sees_drift_and_up_mends_it(stack):  # F8
    stack.declare(a={"text": "one"}, b={"text": "two"})
    stack.up()
    (stack.folder / "a.0.json").write_text('{"text": "tampered", "token": null, "kind": "plain"}')
    (stack.folder / "b.0.json").unlink()
    assert stack.run("refresh", "--expect-no-changes").code == 1
    assert stack.summary("up") == {"update": 1, "create": 1}
    assert stack.files() == {"a.0.json": "one", "b.0.json": "two"}


def test_refresh_drops_what_others_depend_on(stack):  # F8
    stack.declare(a={}, b={"text_of": "a"}, c={"after": "a"})
    stack.up()
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
    failed = stack.run("up")
    assert failed.code == 1
    assert "b: the disk said no" in failed.out
    assert stack.files() == {"a.0.json": "one"}
    stack.declare(a={"text": "one"}, b={"text": "ok", "after": "a"}, c={"text_of": "b"})
    assert stack.summary("up") == {"create": 2}
    assert stack.journal().count("create a.0.json") == 1


def test_a_delete_that_fails_is_told_and_keeps_what_it_needs(stack):  # F9 F17
    stack.declare(a={}, b={"text_of": "a"}, c={"after": "b"}, d={})
    stack.up()
    (stack.folder / "b.0.json").unlink()
    (stack.folder / "b.0.json").mkdir()  # a folder, which cannot be deleted as a file
    failed = stack.run("destroy")
    assert failed.code == 1
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
    stack.declare(a={})
    stack.up()

    def fails(*_arguments):
        raise TimeoutError

    monkeypatch.setattr(DynamicProvider, "delete", fails)
    failed = stack.run("destroy")
    assert failed.code == 1
    assert re.search(r"error: .*::a: TimeoutError\(\)", failed.out)


def test_a_replacement_whose_create_fails_keeps_its_place(stack):  # F17
    stack.declare(a={"kind": "exclusive-1"}, b={"text_of": "a"})
    stack.up()
    stack.declare(a={"kind": "exclusive-2", "text": "fail"}, b={"text_of": "a"})
    assert stack.run("up").code == 1
    assert stack.resource("a")["pendingReplacement"] is True
    assert stack.resource("b")["dependencies"] == [stack.resource("a")["urn"]]
    stack.declare(a={"kind": "exclusive-2"}, b={"text_of": "a"})
    stack.up()
    assert stack.files() == {"a.0.json": "", "b.0.json": f"{stack.folder}/a.0.json"}
    assert "pendingReplacement" not in stack.resource("a")


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_old_half_does_not_take_along_what_has_its_name_now(stack, interrupted):  # F12
    stack.declare(a={"kind": "one"})
    stack.up()
    (stack.folder / "a.0.json").unlink()
    (stack.folder / "a.0.json").mkdir()  # a folder, which cannot be deleted as a file
    stack.declare(a={"kind": "two"})
    assert stack.run("up").code == 1
    (stack.folder / "a.0.json").rmdir()
    if interrupted:  # killed when the file was gone, and the state did not know yet
        document = json.loads(stack.state_file.read_text())
        del document["sha256"], document["seal"]
        latest = document["checkpoint"]["latest"]
        (old,) = (entry for entry in latest["resources"] if entry.get("delete"))
        latest["pending_operations"] = [{"resource": old, "type": "deleting"}]
        stack.state_file.write_text(json.dumps(document))
    stack.declare(a={"kind": "exclusive", "text": "new"})
    printed = stack.up().out
    assert printed.count("delete-replaced done") == (1 if interrupted else 2)
    assert stack.files() == {"a.0.json": "new"}
    assert [entry["id"] for entry in stack.resources() if entry["urn"].endswith("::a")] == [
        "a.0.json"
    ]


def test_what_a_replacement_has_deleted_already_is_only_forgotten(stack):  # F17
    stack.declare(a={"kind": "exclusive-1"})
    stack.up()
    stack.declare(a={"kind": "exclusive-2", "text": "fail"})
    assert stack.run("up").code == 1
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


def test_a_check_failure_names_resource_and_property(stack):
    stack.declare(a={"text": "bad"})
    result = stack.run("up")
    assert result.code == 1
    assert "a: text: must not be 'bad'" in result.out


def test_an_unknown_option_is_refused_by_name(stack):
    stack.declare(a={"import": "a.0.json"})
    result = stack.run("up")
    assert result.code == 1
    assert "does not know the option import_ (of a): run it with the pulumi CLI" in result.out


def test_an_unknown_package_is_refused_by_name(stack):
    (stack.project / "__main__.py").write_text(
        "import pulumi\nclass C(pulumi.CustomResource):\n"
        "    def __init__(self):\n        super().__init__('cloud:index:Thing', 'x', {})\nC()\n"
    )
    result = stack.run("up")
    assert result.code == 1
    assert "resources of the package 'cloud'" in result.out


def test_a_fault_in_the_program_shows_where(stack):
    (stack.project / "__main__.py").write_text("x = 1\nx.nothing\n")
    result = stack.run("up")
    assert result.code == 1
    assert "line 2" in result.out
    assert "AttributeError" in result.out


def test_registering_twice_is_an_error(stack):
    (stack.project / "__main__.py").write_text(
        "import pulumi\npulumi.ComponentResource('a:b:C', 'x')\n"
        "pulumi.ComponentResource('a:b:C', 'x')\n"
    )
    result = stack.run("up")
    assert result.code == 1
    assert "registered twice" in result.out


@pytest.mark.parametrize("command", ["output", "refresh", "destroy"])
def test_a_stack_that_does_not_exist(stack, command):
    stack.declare(a={})
    stack.up()
    result = stack.run(command, stack="nowhere")
    assert result.code == 1
    assert "no stack named 'nowhere'" in result.err
    assert "there: dev" in result.err


def test_up_of_a_stack_without_settings_makes_nothing(stack):
    result = stack.run("up", stack="typo")
    assert result.code == 1
    assert "Pulumi.typo.yaml" in result.err


def test_nobody_to_ask_needs_yes(stack):
    stack.declare(a={})
    result = stack.run("up", yes=False)
    assert result.code == 1
    assert "--yes is needed" in result.err


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

    def refuse(_inputs):
        raise EngineError("the network already exists")

    provider = SimpleNamespace(create=refuse, find=lambda _inputs: next(there))
    context = SimpleNamespace(
        unsettled=set(),
        provider=lambda _type: provider,
        journal=SimpleNamespace(old=lambda _urns: None),
    )
    entry = {"urn": "urn:network", "type": "t", "inputs": {}}
    live._recover_create(context, entry)
    assert steps._made(context, provider, entry) is late
    with pytest.raises(EngineError, match="already exists"):  # somebody else's
        steps._made(context, provider, entry | {"urn": "urn:other"})
