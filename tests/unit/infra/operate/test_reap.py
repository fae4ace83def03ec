"""Verdicts, and what follows from them, without an account."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pulumi
import pytest

from infra.machines import identity, sources
from infra.operate import reap
from infra.operate.backend import Backend
from infra.operate.reap import Judgment
from infra.operate.states import RecordedStack
from infra.places.lambda_cloud import account as lambda_account
from infra.places.lambda_cloud.model import FirewallRuleset, SshKey
from tests.fakes.plain_account import PlainAccount

HERE, THERE = "11111111", "22222222"  # ids of state backends
ELSEWHERE = "of another backend"
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def _stack(**fields):
    empty = {"ids": frozenset(), "mark": "", "busy": False, "expires": None}
    return RecordedStack(**({"project": "trainyard", "name": "dev"} | empty | fields))


def _judge(finding, *stacks):
    return reap.judge([finding], list(stacks), "ann@lab", {HERE}, NOW)[0].verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"id": "known", "mark": "0a1b2c3d", "owner": "bob@lab"}, "in state"),
        ({"id": "known"}, "in state"),  # an adopted key bears no mark
        ({"id": "known", "mark": "0a1b2c3d", "backend": THERE}, "in state"),  # the state moved here
        ({"id": "x"}, "not ours"),
        ({"id": "x", "owner": "ann@lab", "backend": HERE}, "not ours"),
        ({"id": "x", "mark": "bbbbbbbb", "owner": "ann@lab"}, "under way"),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab", "backend": HERE}, "orphan"),
        ({"id": "x", "mark": "ffffffff", "owner": "ann@lab", "backend": HERE}, "orphan"),
        ({"id": "x", "mark": "ffffffff", "owner": "bob@lab", "backend": HERE}, "other owner"),
        ({"id": "x", "mark": "ffffffff", "backend": HERE}, "orphan"),  # a key or ruleset
        # F46: another backend of the same person, whose states are not looked at.
        ({"id": "x", "mark": "ffffffff", "owner": "ann@lab", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "ffffffff", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "ffffffff", "owner": "bob@lab", "backend": THERE}, "other owner"),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab"}, "of no known backend"),
    ],
)
def test_verdicts(fields, verdict):  # A18
    known = _stack(ids=frozenset({"known"}), mark="0a1b2c3d")
    busy = _stack(mark="bbbbbbbb", busy=True)
    assert _judge(Judgment(kind="instance", name="n", **fields), known, busy) == verdict


@pytest.mark.parametrize(("late", "verdict"), [(14, "in state"), (15, "past its end")])
def test_an_instance_that_its_timer_did_not_end_is_past_its_end(late, verdict):  # F49 A18
    ends = {"known": NOW - timedelta(minutes=late), "other": NOW - timedelta(days=1)}
    known = _stack(ids=frozenset({"known", "other"}), ends=ends)
    assert _judge(Judgment(kind="instance", name="n", id="known"), known) == verdict


@pytest.mark.parametrize(
    ("fields", "verdict", "ended"),
    [
        ({"mark": "bbbbbbbb"}, "orphan", True),  # of an `up` that was killed: before SSH, no timer
        ({"mark": "bbbbbbbb", "end": NOW.isoformat()}, "under way", False),
        ({"mark": "ffffffff"}, "orphan", True),
        ({"mark": "ffffffff", "owner": "bob@lab"}, "other owner", True),
        ({"mark": "ffffffff", "owner": "bob@lab", "backend": THERE}, "other owner", False),
        ({"mark": "ffffffff", "backend": THERE}, ELSEWHERE, False),  # F46
        ({"mark": "ffffffff", "end": ""}, "orphan", False),
        ({"mark": "ffffffff", "end": "2026-10-31T00:00"}, "orphan", False),  # of no time zone
        ({"mark": "ffffffff", "end": "9999-12-31T23:59:59+00:00"}, "orphan", False),
        ({"id": "known", "mark": "0a1b2c3d"}, "in state", False),  # its state tells a later end
        ({"id": "late", "mark": "0a1b2c3d", "end": ""}, "past its end", True),
    ],
)
def test_the_account_alone_tells_the_end_of_what_is_in_no_state(fields, verdict, ended):  # F49
    known = _stack(
        ids=frozenset({"known", "late"}),
        mark="0a1b2c3d",
        ends={"known": NOW + timedelta(hours=1), "late": NOW - timedelta(hours=1)},
    )
    stacks = [known, _stack(mark="bbbbbbbb", busy=True)]
    end = (NOW - reap.LATE).isoformat()
    whole = {"id": "x", "owner": "ann@lab", "backend": HERE, "end": end} | fields
    found = reap.judge(
        [Judgment(kind="instance", name="n", **whole)], stacks, "ann@lab", {HERE}, NOW
    )
    assert found[0].verdict == verdict
    assert reap.past_end(found, stacks, {HERE}, NOW) == (found if ended else [])


def test_without_a_stack_the_states_do_not_tell_what_is_in_none():  # F46
    found = [replace(_finding("x", reap.ORPHAN), backend=HERE, end="2026-01-01T00:00:00+00:00")]
    assert reap.past_end(found, [], {HERE}, NOW) == []


def _finding(id_, verdict, kind="instance"):
    return Judgment(kind=kind, id=id_, name=id_, price=1.0, verdict=verdict)


FOUND = [
    _finding("o1", reap.ORPHAN),
    _finding("o2", reap.ORPHAN),
    _finding("there", reap.OTHER_BACKEND),
    _finding("old", reap.NO_BACKEND),
    _finding("theirs", reap.OTHER_OWNER),
    _finding("known", reap.IN_STATE),
    _finding("busy", reap.UNDER_WAY),
    _finding("stranger", reap.NOT_OURS),
    _finding("key", reap.ORPHAN, kind="key"),
]


def test_only_orphans_end_without_being_named_and_what_may_be_in_no_state_by_its_name():  # F46
    assert [each.id for each in reap.to_end(FOUND, [])] == ["o1", "o2"]
    named = reap.to_end(FOUND, ["there", "old", "o2", "old"])
    assert [each.id for each in named] == ["there", "old", "o2"]


@pytest.mark.parametrize(
    ("id_", "told"),
    [
        ("known", "known is in state: destroy its stack"),
        ("busy", "busy is under way: run up or destroy"),
        ("theirs", "theirs is other owner: name the owner too, with --owner"),
        ("stranger", "stranger is not ours: end it on the account's page"),
        ("key", "no instance key"),
        ("none", "no instance none"),
    ],
)
def test_what_may_not_end_is_refused_by_its_name(id_, told):
    with pytest.raises(pulumi.RunError, match=f"{told}.*Nothing was ended"):
        reap.to_end(FOUND, ["o1", id_])


class Account(PlainAccount):
    """Two instances of this owner, one of each backend."""

    def __init__(self):
        super().__init__()
        for name, place in (("a", HERE), ("b", THERE)):
            tags = {identity.OWNER: "ann@lab", identity.ID: "ffffffff", identity.BACKEND: place}
            self.add(name, tags=tags, status="active")

    def ssh_keys(self):
        mark = identity.key_comment(identity.Mark(stack="ffffffff", backend=THERE))
        return [SshKey(id="k", name="key", public_key=f"ssh-ed25519 AAAA {mark}")]

    def firewall_rulesets(self):
        mark = identity.Mark(stack="ffffffff", backend=HERE)
        name = identity.resource_name("p-s", mark, "us-east-1")
        found = {"id": "r", "name": name, "region": {"name": "us-east-1"}, "rules": []}
        return [FirewallRuleset.model_validate(found)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The account of a project whose backend has the id HERE and one stack."""
    (tmp_path / "Pulumi.yaml").write_text("name: trainyard\n")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    folder = tmp_path / ".pulumi"
    state = folder / "stacks" / "trainyard" / "dev.json"
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": []}}}))
    note = {"id": HERE, "inode": folder.stat().st_ino}
    (folder / "trainyard.json").write_text(json.dumps(note))
    made = Account()
    monkeypatch.setattr(lambda_account, "open_account", lambda _: made)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    return made


@pytest.fixture
def reaped(tmp_path, capsys):
    """Run the command; its exit code and what it printed."""

    def run(*arguments):
        code = reap.main(["-C", str(tmp_path), "--owner", "ann@lab", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_a_look_ends_nothing_and_tells_of_all(account, reaped):  # A18
    code, text, err = reaped("--json")
    document = json.loads(text)
    assert (code, account.ended, err) == (1, [], "")
    assert document["backend"] == [HERE]
    assert document["orphansHourlyCost"] == 0.75
    assert {each["id"]: each["verdict"] for each in document["findings"]} == {
        "a": "orphan",
        "b": ELSEWHERE,
        "k": ELSEWHERE,
        "r": "orphan",
    }
    code, text, _ = reaped()
    assert "1 orphaned instance(s) of ann@lab: 0.75 $/h" in text
    assert "1 of another backend, or of none: 0.75 $/h" in text


@pytest.mark.parametrize(
    ("answer", "ended"), [("y\n", ["a"]), ("yes\n", ["a"]), ("n\n", []), ("\n", []), ("", [])]
)
def test_an_end_is_agreed_to_at_a_terminal(account, reaped, monkeypatch, answer, ended):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, text, err = reaped("--end")
    assert account.ended == ended
    assert code == (0 if ended else 1)
    assert "a" in text  # it was listed
    assert "a a (orphan)\nEnd 1 instance(s), 0.75 $/h? [y/N]" in err


def test_an_end_without_a_terminal_needs_a_word(account, reaped):
    code, _, err = reaped("--end")
    assert (code, account.ended) == (1, [])
    assert "1 instance(s), 0.75 $/h: no terminal to ask; add --yes. Nothing was" in err
    assert reaped("--end", "--yes")[0] == 0
    assert account.ended == ["a"]
    assert reaped("--end")[0] == 0  # nothing to ask about
    assert reaped("--end", "b", "--yes")[0] == 0
    assert account.ended == ["a", "b"]


def test_an_orphan_that_is_not_named_is_still_one(account, reaped):
    assert reaped("--end", "b", "--yes")[0] == 1
    assert account.ended == ["b"]


@pytest.mark.parametrize(
    ("lost", "told"),
    [("stacks/trainyard/dev.json", "has no stack, so"), ("trainyard.json", "has no id: ")],
)
def test_a_backend_that_tells_nothing_ends_only_what_is_named(  # F46
    account, reaped, tmp_path, lost, told
):
    (tmp_path / ".pulumi" / lost).unlink()
    code, _, err = reaped("--end", "--yes")
    assert (code, account.ended) == (1, [])
    assert f"{tmp_path}/.pulumi {told}" in err
    assert "--end ID. Nothing was ended" in err
    code, _, _ = reaped("--end", "a", "--yes")
    assert account.ended == ["a"]


def test_a_state_that_is_damaged_ends_not_even_what_is_named(account, reaped, tmp_path):  # F15
    (tmp_path / ".pulumi" / "stacks" / "trainyard" / "dev.json").write_text("")
    code, _, err = reaped("--end", "a", "--yes")
    assert (code, account.ended) == (1, [])
    assert "cannot be read" in err


@pytest.mark.parametrize(
    ("arguments", "ended"),
    [((), []), (("--expired",), ["over", "just-over"]), (("--end", "--yes"), [])],
)
@pytest.mark.parametrize("fails", [True, False])
def test_a_stack_past_its_time_is_destroyed_when_it_is_asked_for(
    account, reaped, monkeypatch, arguments, ended, fails
):
    now = datetime.now(UTC)
    times = {"over": now - timedelta(days=1), "just-over": now, "later": now + timedelta(hours=1)}
    stacks = [_stack(name=name, expires=time) for name, time in times.items()]
    monkeypatch.setattr(reap.states, "read_stacks", lambda *_: [*stacks, _stack(name="endless")])
    destroyed = []
    bad = {"over"} if fails else set()  # one that fails keeps no other
    monkeypatch.setattr(
        reap, "_destroy", lambda stack, _: destroyed.append(stack.name) or stack.name in bad
    )
    account.held.clear()
    code, text, _ = reaped(*arguments)
    assert destroyed == ended
    assert code == int(bool(ended) and fails)
    assert ("stack trainyard/over is past its time" in text, "later" in text) == (True, False)


@pytest.mark.parametrize(
    ("project", "status", "code"),
    [("trainyard", 0, 0), ("trainyard", 2, 1), ("another", 0, 1)],
)
def test_a_stack_past_its_time_is_destroyed_in_its_projects_folder(  # A18
    account, reaped, monkeypatch, tmp_path, project, status, code
):
    stack = _stack(project=project, name="over", expires=datetime.now(UTC))
    monkeypatch.setattr(reap.states, "read_stacks", lambda *_: [stack])
    account.held.clear()
    ran = []

    def run(words, **options):
        ran.append((words, options))
        return SimpleNamespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    found, text, _ = reaped("--expired")
    assert found == code
    refused = "another/over: of another project; name its folder with -C" in text
    assert refused == (project == "another")
    words = [sys.executable, "-P", "-m", "engine.launch", "destroy", "-s", "over"]
    options = {"cwd": tmp_path, "check": False, "stdout": 2}  # the report alone is in stdout
    assert ran == ([] if refused else [(words, options)])


def test_a_cloud_without_an_account_here_is_needed_by_its_stacks_only(account, reaped, monkeypatch):
    def closed(_):
        raise pulumi.RunError("no key of another cloud")

    cloud = sources.CLOUDS[0]
    other = replace(cloud, module="other", account=closed)
    monkeypatch.setattr(sources, "CLOUDS", (other, cloud))
    assert "1 orphaned instance(s) of ann@lab" in reaped()[1]
    monkeypatch.setattr(reap.states, "read_stacks", lambda *_: [_stack(), _stack(cloud="other")])
    assert reaped("--end", "a", "--yes") == (1, "", "error: no key of another cloud\n")
    monkeypatch.setattr(sources, "CLOUDS", (other,))
    assert reaped()[0] == 1
    assert account.ended == []


@pytest.mark.parametrize(
    ("arguments", "fails", "code"),
    [((), False, 1), (("--expired",), True, 1), (("--expired",), False, 0), (("--end",), False, 1)],
)
def test_a_machine_past_its_end_is_a_finding_until_its_stack_is_destroyed(  # F49
    account, reaped, monkeypatch, arguments, fails, code
):
    over = datetime.now(UTC) - timedelta(hours=1)
    stack = _stack(ids=frozenset({"a"}), expires=over, ends={"a": over})
    monkeypatch.setattr(reap.states, "read_stacks", lambda *_: [stack])
    monkeypatch.setattr(reap, "_destroy", lambda *_: fails)
    found, text, _ = reaped(*arguments)
    assert found == code
    assert "1 instance(s) past their end: 0.75 $/h. End them: --past-end, or destroy" in text
    assert account.ended == []
    account.held.clear()  # its stack is past its time, but nothing bills
    assert reaped()[0] == 0


def test_a_name_may_hold_markup(account, reaped):  # F39
    account.held["a"] = account.held["a"].model_copy(update={"name": "[/x] :smile: [red]"})
    code, text, err = reaped("--end", "--yes")
    assert (code, account.ended, err) == (0, ["a"], "Terminated instance a\n")
    assert "[/x] :smile: [red]" in text


def test_a_backend_in_no_folder_has_an_id_for_each_organization():  # F46
    place = Backend(url="https://api.example.com", place=None)
    stacks = [_stack(organization="ann"), _stack(organization="team"), _stack(organization="ann")]
    assert reap.ids(place, stacks) == {place.id("ann"), place.id("team")}
    assert reap.ids(place, []) == set()
