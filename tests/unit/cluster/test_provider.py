import importlib
import pkgutil
import sys
import types

import pytest
from pulumi import RunError, dynamic

import cluster
import infra
from cluster import provider
from trainyard.access.ssh import SshError


def _providers():
    for package in (cluster, infra):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in ("infra.__main__", "infra.policy.__main__"):
                importlib.import_module(found.name)
    todo, found = [dynamic.ResourceProvider], set()
    while todo:
        below = [each for each in todo.pop().__subclasses__() if each not in found]
        found.update(below)
        todo += below
    return [each for each in found if each.__module__.startswith(("cluster.", "infra."))]


def test_every_provider_changes_the_host(monkeypatch):
    changed = []
    monkeypatch.setattr(provider, "change_host", lambda: changed.append(1))
    request = dynamic.ConfigureRequest(config=dynamic.Config({}, "trainyard"))
    providers = _providers()
    assert len(providers) > 20
    for each in providers:
        each().configure(request)
        assert changed, each
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
