"""A difference is shown by its path and both values, however deep or long they are."""

import copy

import pytest

from engine.differences import MOST_LINES, describe_differences, differences, excerpts, resuming
from engine.display import Display
from engine.values import secret

GROUPS = [
    {"groupName": name, "maxReplicas": 2, "template": {"env": [{"name": "A", "value": "x" * 99}]}}
    for name in ("cpu", "gpu", "tpu")
]


def _manifest(*groups):
    return {"manifest": {"spec": {"workerGroupSpecs": copy.deepcopy([*groups])}}}


def _printed(capsys, olds, news, *hidden):
    display = Display(dry_run=True, diff=True, debug=False)
    display.hide(hidden)
    with display.step("update", "urn:pulumi:dev::p::t::a", olds, news):
        pass
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == " ~  t a update planned"  # what differs is below its resource
    return lines


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


def test_files_are_shown_as_unified_differences(capsys):
    old = "".join(f"line {number}\n" for number in range(9))
    new = old.replace("line 4\n", "line four\npassword canary-password\n")
    printed = _printed(
        capsys,
        {"files": {"/etc/b": old, "/etc/a": old, "/etc/gone": "a\nb\n"}},
        {"files": {"/etc/new": "a\n", "/etc/b": new, "/etc/a": old}},
        "canary-password",
    )
    assert [line.removeprefix("        ") for line in printed] == [
        "files./etc/b:",
        *("  @@ -2,7 +2,8 @@", "   line 1", "   line 2", "   line 3", "  -line 4"),
        *("  +line four", "  +password [secret]", "   line 5", "   line 6", "   line 7"),
        "files./etc/gone:",
        *("  @@ -1,2 +0,0 @@", "  -a", "  -b"),
        "files./etc/new:",
        *("  @@ -0,0 +1 @@", "  +a"),
    ]
    new = {"b": {"y": ["ls", "-l"], "x": old}, "a": [{"n": 2}]}
    assert [*describe_differences({}, new)] == ["a[0].n: 2", "b.x: 9 lines", "b.y: ['ls', '-l']"]


def test_a_secret_in_a_file_is_no_line_of_it(capsys):
    old, new = ("key:\ncanary-one\n", "key:\ncanary-two\n")
    assert _printed(capsys, {"a": old}, {"a": new}, "canary-one", "canary-two") == [
        "        a: a secret in it"
    ]


def test_a_text_that_is_json_is_shown_by_its_keys(capsys):
    old, new = '{"b": 1, "a": {"c": [1, 2]}}', '{"a": {"c": [1, 3]}, "b": 1, "d": "canary-in"}'
    assert _printed(capsys, {"a": old}, {"a": new}) == [
        "        a.a.c[1]: 2 => 3",
        "        a.d: 'canary-in'",
    ]
    # It may be the JSON of a secret, whose parts are not known as secrets.
    printed = _printed(capsys, {"a": old}, {"a": new}, new)
    assert "canary" not in "".join(printed)


def test_a_long_difference_is_cut():
    found = [*describe_differences({"a": "x\n"}, {"a": "y\n" * 999})]
    assert len(found) == MOST_LINES + 2
    assert found[-1] == f"  and {999 + 2 - MOST_LINES} lines more"


def test_a_replaced_resource_shows_only_what_changed(capsys):
    Display(dry_run=True, diff=True, debug=False).done(
        "replace", "urn:pulumi:dev::p::t::a", changes=({"a": 1, "b": 2}, {"b": 3, "a": 1})
    )
    assert capsys.readouterr().out.splitlines() == [" +- t a replace planned", "        b: 2 => 3"]


def test_of_long_texts_what_differs_is_shown():
    old, new = ("\n".join("line" * 50 for _ in range(9)) + end for end in ("one", "two"))
    before, after = excerpts(old, new, 60)
    assert (before[-3:], after[-3:]) == ("one", "two")
    assert before.startswith("…")
    assert len(before) < 65
    assert excerpts(old, "nothing", 60) == (f"{old[:60]}…", "nothing")
    assert excerpts("short", "shorter", 60) == ("short", "shorter")


COMMAND = ["ray_command.py", "start", "--num-cpus=1", "--memory=7623566950", "--port=11879"]
MANIFEST = {"spec": {"limits": [{"memory": "7Gi"}]}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            {"command": COMMAND, "ports": [{"number": 11879}], "__provider": "a"},
            {
                "command": [*COMMAND[:3], "--memory=15139998925", "--port=11979"],
                "ports": [{"number": 11979}],
                "__provider": "b",
            },
            "memory 7.1 → 14.1 GiB, port 11879 → 11979; restarts",
        ),
        ({"memory": 512}, {"memory": 1536}, "memory 0.5 → 1.5 GiB"),
        ({}, {"memory": 512}, "memory nothing → 0.5 GiB"),
        ({"manifest": MANIFEST}, {"manifest": {"spec": {"limits": "x" * 99}}}, "limits"),
        ({"image": f"ray@sha256:{'0' * 64}"}, {"image": f"ray@sha256:{'1' * 64}"}, "image"),
        ({"text": "one\ntwo"}, {"text": "one\nsix"}, "text"),
        ({"n": [1, 2, 3, 4]}, {"n": [5, 6, 7, 8]}, "n 1 → 5, n 2 → 6, n 3 → 7 and 1 more (--diff)"),
        ({"key": secret("hush")}, {"key": secret("mush")}, "key [secret] → [secret]"),
        ({"words": ["--key=hidden-one"]}, {"words": ["--key=b"]}, "key [secret] → b"),
        ({"command": ["a"]}, {"command": ["a", "b"]}, "command nothing → b; restarts"),
    ],
)
def test_a_preview_says_why_in_units_of_people(old, new, told, capsys):
    display = Display(dry_run=True, diff=False, debug=False)
    display.hide(["hidden-one"])
    with display.step("update", "urn:pulumi:dev::p::t::a", old | {"a": 1}, new | {"a": 1}):
        pass
    with display.step("create", "urn:pulumi:dev::p::t::b", {}, new):
        pass
    line, created = capsys.readouterr().out.splitlines()
    assert line == f" ~  t a update planned: {told}"
    assert created == " +  t b create planned"


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("change", "resumes"),
    [
        ({"command": [*COMMAND, "--node-ip-address=127.0.0.4"]}, "runs a, b resume"),
        ({"environment": {"A": "1"}}, "runs a, b resume"),
        ({"memory": 1}, ""),
    ],
)
def test_it_names_the_runs_that_resume(change, resumes, dry_run, capsys):
    words = [*COMMAND, "--node-ip-address=127.0.0.3"]
    olds = {"command": words, "memory": 512}
    runs = {"127.0.0.3": ["a", "b"], "127.0.0.30": ["c"], "10.0.0.1": ["d"]}
    display = Display(dry_run=dry_run, diff=False, debug=False, runs=runs)
    with display.step("update", "urn:pulumi:dev::p::t::a", olds | {"x": 1}, olds | change):
        pass
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith(f"; {resumes}" if dry_run and resumes else resumes or line)
    assert ("resume" in line) == bool(resumes)


@pytest.mark.parametrize("diff", [True, False])
def test_a_removed_workers_line_names_its_runs_and_none_of_its_values(diff, capsys):
    display = Display(dry_run=True, diff=diff, debug=False, runs={"127.0.0.3": ["a"]})
    olds = {"command": ["start", "--node-ip-address=127.0.0.3"], "memory": 512}
    with display.step("delete", "urn:pulumi:dev::p::t::a", olds, {}):
        pass
    assert capsys.readouterr().out.splitlines() == [" -  t a delete planned: run a resumes"]


def test_a_heads_line_names_no_run_since_its_jobs_end():
    head = {"command": ["--head", "--node-ip-address=10.0.0.1"]}
    worker = {"command": ["--node-ip-address=10.0.0.1"]}
    runs = {"10.0.0.1": ["a"]}
    assert resuming(worker, {}, runs) == "run a resumes"
    for olds in (head, {"command": secret("x")}, {"command": "--node-ip-address=10.0.0.1"}, {}):
        assert resuming(olds, {}, runs) == ""
