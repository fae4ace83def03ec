import sys
import types
from collections.abc import Mapping

import pytest
from pulumi import RunError, dynamic

from cluster import provider
from cluster.provider import Args, Given
from cluster.provider_kinds import KINDS, Recorded
from trainyard.access.ssh import SshError


class Asked(Args):
    name: Given[str]
    count: int = 1
    more: Given[Mapping[str, str] | None] = None


def test_arguments_are_read_back_from_a_state():
    found = Asked.of({"name": "a", "count": 2.0, "output": 1})  # engines pass ints on as floats
    assert (found, type(found.count)) == (Asked(name="a", count=2), int)


@pytest.mark.parametrize("props", [{"name": 1}, {"name": "a", "count": 1.5}, {"count": 1}])
def test_arguments_of_another_type_are_refused(props):
    with pytest.raises(TypeError, match=r"must be|missing"):
        Asked.of(props)


def test_every_provider_changes_the_host(monkeypatch):
    changed = []
    monkeypatch.setattr(provider, "change_host", lambda: changed.append(1))
    request = dynamic.ConfigureRequest(config=dynamic.Config({}, "trainyard"))
    for kind in KINDS:
        Recorded(kind).configure(request)
        assert changed, kind
        changed.clear()


def test_other_main_modules_are_left_alone(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    before = dict(vars(main))
    provider.change_host()
    assert vars(main) == before


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SshError("stack-a cannot be reached"), "stack-a cannot be reached"),
        (RunError("three nodes are asked for"), "three nodes are asked for"),
        (FileNotFoundError(2, "No such file", "/a"), "[Errno 2] No such file: '/a'"),
        (RunError(), "RunError()"),
    ],
)
def test_an_error_that_was_foreseen_is_its_message(error, text):
    try:
        raise error from KeyError("cause")
    except type(error):
        assert provider.message() == text


def test_an_error_that_nobody_foresaw_says_where_it_is_from():
    try:
        {}["state"]
    except KeyError:
        assert "Traceback" in provider.message()
        assert "KeyError: 'state'" in provider.message()


@pytest.mark.parametrize("ignored", [False, True])
def test_what_is_ill_differs_but_not_for_train_scale(ignored, monkeypatch, capsys):  # F63
    class Ill(provider.Provider):
        def fault(self, _id, _props):
            return "web ended 3 times"

    if ignored:  # it would keep machines that are to end
        monkeypatch.setenv(provider.IGNORE_HEALTH, "1")
    assert Ill().diff("id", {"a": 1}, {"a": 1}).changes is not ignored
    assert ("web ended 3 times" in capsys.readouterr().err) is not ignored
