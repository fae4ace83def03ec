"""The journal: a change is always in the written state or among its steps."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.journal import Journal
from engine.state import State
from tests.waiting import wait_for


def _entry(name, **more):
    return {"urn": f"urn:{name}", "id": name, "type": "t", **more}


@pytest.fixture
def written():
    return []


@pytest.fixture
def journal(written):
    olds = [_entry("a"), _entry("b", dependencies=["urn:a"])]
    pending = [{"resource": _entry("p"), "type": "creating"}]

    def save(state):
        written.append(copy.deepcopy(state))

    return Journal(State(resources=olds, pending=pending, salt="salt"), save)


def _urns(state):
    return [entry["urn"] for entry in state.resources]


def test_a_step_is_written_before_it_begins_and_with_its_result(journal, written):  # F12
    entry = _entry("c")
    with journal.step("creating", entry):
        [before] = written
        assert before.pending[1:] == [{"resource": entry, "type": "creating"}]
        assert _urns(before) == ["urn:a", "urn:b"]
        assert before.salt == "salt"
        journal.record(entry)
        assert len(written) == 2
        assert written[1].pending == before.pending  # always in one of the two places
        assert _urns(written[1]) == ["urn:c", "urn:a", "urn:b"]
    journal.flush()
    assert [operation["type"] for operation in written[2].pending] == ["creating"]
    journal.flush()
    assert len(written) == 3


def test_steps_that_begin_during_a_write_share_the_next(written):  # F12 P3
    count = 8

    def begin(number):
        entry = _entry(f"n{number}")
        with journal.step("creating", entry):
            return any(operation["resource"] == entry for operation in written[-1].pending)

    def save(state):
        if not written:
            wait_for("the others to begin", lambda: len(journal.state().pending) == count)
        written.append(copy.deepcopy(state))

    journal = Journal(State(), save)
    with ThreadPoolExecutor(count) as pool:
        assert all(pool.map(begin, range(count)))  # each is written before its body runs
    assert len(written) == 2


def test_a_step_that_fails_is_taken_off_the_list(journal, written):
    with pytest.raises(RuntimeError), journal.step("deleting", _entry("a")):
        raise RuntimeError
    journal.flush()
    assert len(written[-1].pending) == 1
    assert _urns(written[-1]) == ["urn:a", "urn:b"]


def test_a_deleted_resource_is_forgotten_at_once(journal, written):
    journal.drop(journal.old("urn:b"))
    assert _urns(written[-1]) == ["urn:a"]
    journal.drop(journal.old("urn:a"), changed=False)
    assert len(written) == 1
    journal.flush()
    assert _urns(written[-1]) == []


def test_what_did_not_change_is_not_written(journal, written):
    old = journal.old("urn:a")
    journal.record(dict(old), old, changed=False)
    journal.flush()
    assert written == []
    old = journal.old("urn:b")
    journal.record({**old, "protect": True}, old, changed=False)
    assert written == []
    journal.flush()
    assert written[-1].resources[1]["protect"] is True


def test_what_an_interrupted_create_left_is_taken_in_at_once(journal, written):  # F12
    journal.adopt(_entry("p"), journal.old("urn:a"))
    assert _urns(written[-1]) == ["urn:b", "urn:p"]
    journal.settle(journal.state().pending[0])
    journal.flush()
    assert written[-1].pending == []


def test_marks_are_written_with_the_next_flush(journal, written):
    entry = journal.old("urn:a")
    journal.mark(entry, id="a")
    journal.flush()
    assert written == []
    journal.mark(entry, delete=True)
    journal.flush()
    assert written[-1].resources[0]["delete"] is True
    assert journal.old("urn:a") is None  # no living one
    assert journal.old("urn:b")["id"] == "b"


def test_a_change_that_waits_for_the_next_flush_is_not_forgotten(journal, written):
    journal.drop(journal.old("urn:b"), changed=False)
    old = journal.old("urn:a")
    journal.record(dict(old), old, changed=False)
    assert written == []
    journal.flush()
    assert _urns(written[-1]) == ["urn:a"]


def test_the_end_of_an_old_half_is_not_the_end_of_its_name(written):
    child = _entry("c", parent="urn:a", deletedWith="urn:a")
    journal = Journal(State(resources=[_entry("a"), child]), written.append)
    old = journal.old("urn:a")
    journal.record(_entry("a") | {"id": "new"})
    journal.mark(old, delete=True)
    journal.drop(old)
    assert [entry["id"] for entry in written[-1].resources] == ["new", "c"]
    assert written[-1].resources[1] == child


def test_a_name_that_was_gone_and_is_back_is_referred_to(written):
    child = _entry("c", parent="urn:a", deletedWith="urn:a")
    stack = _entry("s::pulumi:pulumi:Stack::p-dev")
    journal = Journal(State(resources=[stack, _entry("a"), child]), written.append)
    journal.drop(journal.old("urn:a"))
    journal.record(_entry("a"))
    assert child in written[-1].resources


def test_references_to_what_is_gone_are_left_out(written):
    stack = _entry("s::pulumi:pulumi:Stack::p-dev")
    child = _entry("c", parent="urn:a", deletedWith="urn:a", dependencies=["urn:a"])
    child |= {"propertyDependencies": {"text": ["urn:a", stack["urn"]]}}
    journal = Journal(State(resources=[stack, _entry("a"), child]), written.append)
    journal.drop(journal.old("urn:a"))
    assert written[-1].resources[1] == _entry("c", parent=stack["urn"], dependencies=[]) | {
        "propertyDependencies": {"text": [stack["urn"]]}
    }
    assert child["parent"] == "urn:a"  # written is a copy
