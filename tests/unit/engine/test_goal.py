"""The goal of a registration."""

import pytest
from pulumi.runtime.proto import resource_pb2

from engine.errors import UnsupportedError
from engine.goal import goal_of


def _goal(**fields):
    request = resource_pb2.RegisterResourceRequest(
        type="docker:index/volume:Volume", name="data", custom=True, **fields
    )
    return goal_of(request, project="p", stack="dev")


def test_custom_timeouts_are_recorded_in_seconds_as_the_cli_does():
    timeouts = resource_pb2.RegisterResourceRequest.CustomTimeouts(create="30m", delete="1m30s")
    goal = _goal(customTimeouts=timeouts)
    assert goal.entry({}, "")["customTimeouts"] == {"create": 1800, "delete": 90}
    assert "customTimeouts" not in _goal().entry({}, "")


def test_a_timeout_that_is_none_is_named():
    timeouts = resource_pb2.RegisterResourceRequest.CustomTimeouts(create="soon")
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        _goal(customTimeouts=timeouts)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"providers": {"docker": "urn:x::1"}}, "explicit providers of components"),
        ({"importId": "x"}, r"the option import_ \(of data\)"),
        ({"protect": True}, "the option protect"),
        ({"aliasURNs": ["urn:x"]}, "the option aliases"),
        ({"ignoreChanges": ["labels[*]"]}, r"'labels\[\*\]', which is not a whole property"),
        ({"replaceOnChanges": ["*"]}, r"'\*', which is not a whole property"),
    ],
)
def test_an_option_that_only_the_cli_knows_is_refused_by_name(fields, words):
    with pytest.raises(UnsupportedError, match=words):
        _goal(**fields)
    _goal(protect=False, replaceOnChanges=["triggers[*]"])


def test_what_the_cli_records_and_the_program_does_not_say_is_kept():
    kept = {"created": "then", "protect": True, "aliases": ["urn:x"], "sourcePosition": "a.py#1"}
    entry = _goal().entry({}, "", {**kept, "pendingReplacement": True, "initErrors": ["x"]})
    assert kept.items() <= entry.items()
    assert not {"pendingReplacement", "initErrors"} & entry.keys()


def test_only_docker_has_providers_that_a_program_declares():  # A27
    assert _goal(provider="urn:engine::1").provider == "urn:engine::1"
    request = resource_pb2.RegisterResourceRequest(type="pulumi:providers:docker", name="engine")
    assert goal_of(request, project="p", stack="dev").type == request.type
    request.type = "pulumi:providers:command"
    with pytest.raises(UnsupportedError, match=r"providers of this package \(engine\)"):
        goal_of(request, project="p", stack="dev")
