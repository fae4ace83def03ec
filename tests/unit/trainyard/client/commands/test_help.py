"""The help shows the commands in groups, and for each examples that can be typed."""

import shlex
from typing import Any

import pytest
import typer.main

from trainyard.client import cli
from trainyard.client.commands import GROUPS

WIDTH = 80  # of a terminal
COMMANDS: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
EXAMPLES = [
    (name, given, effect)
    for named in GROUPS.values()
    for name, examples in named.items()
    for given, effect in examples
]


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def test_each_command_is_in_a_group():
    assert [name for named in GROUPS.values() for name in named] == [*COMMANDS]


def test_the_groups_are_shown(train):
    assert train("--help") == 0
    said = train.out
    places = [said.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    assert said.index("\nStacks:") < said.index("\n  up ") < said.index("\nJobs:")
    assert " train up " not in said  # the first sentence of each, and no examples


@pytest.mark.parametrize("command", ["submit", "cluster-file", "reap"])
def test_examples_come_first(command, train):
    assert train(command, "--help") == 0
    lines = [line.strip() for line in train.out.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: train {command} ")
    for line, (name, given, effect) in zip(
        lines[1:], [each for each in EXAMPLES if each[0] == command], strict=False
    ):
        assert line.startswith(f"train {given} "), name
        assert line.endswith(effect)


@pytest.mark.parametrize(("name", "given", "effect"), EXAMPLES)
def test_an_example_can_be_typed(name, given, effect):
    first, *words = shlex.split(given)
    assert first == name
    COMMANDS[name].make_context(name, words)  # raises where it does not know an option


@pytest.mark.parametrize("words", [["list", "--js"], ["submit", "--nam", "x", "alexnet"]])
def test_abbreviated_options_are_refused(words, train):
    assert train(*words) == 2
    assert "No such option" in train.err
