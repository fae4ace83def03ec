"""States record the provider of each resource by its kind, so that its class may move."""

import importlib
import pkgutil
from pathlib import Path

import pytest
from pulumi import dynamic
from pulumi.dynamic.dynamic import serialize_provider

import cluster
import infra
from cluster.provider import Resource
from cluster.provider_kinds import KINDS, Recorded
from engine import recorded

ROOT = Path(__file__).parents[3]


def _resources():
    """The classes of dynamic resources of Trainyard, by their kinds."""
    for package in (cluster, infra):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in ("infra.__main__", "infra.operate.policy.__main__"):
                importlib.import_module(found.name)
    todo, found = [dynamic.Resource], {}
    while todo:
        todo += (below := todo.pop().__subclasses__())
        for each in below:
            if each is not Resource and each.__module__.startswith(("cluster.", "infra.")):
                found[each._resource_type_name.removeprefix("dynamic/")] = each
    return found


def test_each_type_of_resource_is_a_kind():
    resources = _resources()
    assert resources.keys() == KINDS.keys()
    for kind, resource in resources.items():
        if issubclass(resource, Resource):
            assert type(Recorded(kind)) is resource._kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_is_recorded_by_its_kind(kind):
    text = serialize_provider(Recorded(kind))
    assert text == recorded.of_kind(kind)
    loaded = recorded.Recorded(ROOT / "infra", ROOT).load(text)  # F48: by name, in the clear
    assert f"{type(loaded).__module__}.{type(loaded).__name__}" == KINDS[kind]


def test_what_states_record_never_changes():
    """A stack whose state has another text could not be destroyed any more."""
    assert recorded.of_kind("cluster:Secret") == (
        "gASVPAAAAAAAAACMFmNsdXN0ZXIucHJvdmlkZXJfa2luZHOUjAhSZWNvcmRlZJSTlIwOY2x1c3RlcjpTZWNyZXSU"
        "hZRSlC4="
    )
