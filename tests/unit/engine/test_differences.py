"""A difference is shown by its path and both values, however deep or long they are."""

import copy

import pytest

from engine.differences import differences, excerpts
from engine.display import Display
from engine.values import secret

GROUPS = [
    {"groupName": name, "maxReplicas": 2, "template": {"env": [{"name": "A", "value": "x" * 99}]}}
    for name in ("cpu", "gpu", "tpu")
]


def _manifest(*groups):
    return {"manifest": {"spec": {"workerGroupSpecs": copy.deepcopy([*groups])}}}


def _printed(capsys, olds, news):
    Display(dry_run=True, diff=True, debug=False).changes(olds, news)
    return capsys.readouterr().out.splitlines()


def test_a_field_of_a_list_in_a_manifest_is_told_by_its_path(capsys):
    live = _manifest(*GROUPS)
    live["manifest"]["spec"]["workerGroupSpecs"][1]["maxReplicas"] = 4
    assert _printed(capsys, _manifest(*GROUPS), live) == [
        "        manifest.spec.workerGroupSpecs[1].maxReplicas: 2 => 4"
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("abc", "ac", [("x[1]", "b", None)]),
        ("ac", "abc", [("x[1]", None, "b")]),
        ("aab", "ab", [("x[1]", "a", None)]),
        ("abc", "", [("x[0]", "a", None), ("x[1]", "b", None), ("x[2]", "c", None)]),
        ("abc", "axcd", [("x[1]", "b", "x"), ("x[2]", "c", "c"), ("x[3]", None, "d")]),
        ("abc", "abc", []),
    ],
)
def test_items_that_come_and_go_leave_the_others_in_place(old, new, told):
    found = list(differences("x", [*old], [*new]))
    assert found == [each for each in told if each[1] != each[2]]


def test_a_secret_is_a_whole_and_never_shown(capsys):
    olds = {"a": {"b": [secret({"k": "one-secret"}), 1]}, "__provider": "x"}
    news = {"a": {"b": [secret({"k": "two-secret"}), 1], "c": {}}, "__provider": "y"}
    assert _printed(capsys, olds, news) == [
        "        a.b[0]: '[secret]' => '[secret]'",
        "        a.c: {}",
    ]


def test_of_long_texts_what_differs_is_shown():
    old, new = ("\n".join("line" * 50 for _ in range(9)) + end for end in ("one", "two"))
    before, after = excerpts(old, new, 60)
    assert (before[-3:], after[-3:]) == ("one", "two")
    assert before.startswith("…")
    assert len(before) < 65
    assert excerpts(old, "nothing", 60) == (f"{old[:60]}…", "nothing")
    assert excerpts("short", "shorter", 60) == ("short", "shorter")
