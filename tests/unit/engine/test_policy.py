"""A policy pack in the engine: refused steps are not begun."""

import json
from pathlib import Path

import pytest

PACK = """
from dataclasses import dataclass
from typing import Any

@dataclass(frozen=True)
class Rule:
    name: str
    level: str
    check: Any

def no_bad_text(type_, props):
    if props.get("text") == "rude":
        yield "says a rude word"

def no_token(type_, props):
    if "token" in props:
        yield f"has a token: {props['token']}"

RULES = [Rule("no-rude", "mandatory", no_bad_text), Rule("no-token", "advisory", no_token)]
"""


@pytest.fixture
def pack(tmp_path):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "rules.py").write_text(PACK)
    return folder


@pytest.fixture
def levels(tmp_path):
    def write(content):
        path = tmp_path / "levels.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return ("--policy-pack-config", str(path))

    return write


def _refused(stack, pack, *arguments, command="up"):
    result = stack.refuses(command, "--policy-pack", str(pack), *arguments)
    return result.out + result.err


def test_a_mandatory_rule_stops_before_anything_is_made(stack, pack):
    stack.declare(a={"text": "one"}, b={"text": "rude"}, c={"text": "rude"})
    for command in ("up", "preview"):
        text = _refused(stack, pack, command=command)
        assert "error: b: no-rude (mandatory): says a rude word" in text
        assert "policies refuse it: no-rude of b, no-rude of c" in text
    stack.declare(a={"text": "one"})
    assert stack.run("up", "--policy-pack", str(pack)).code == 0
    # Every registered resource, not only the changed ones.
    stack.up()
    stack.up(a={"text": "rude"})
    assert "no-rude of a" in _refused(stack, pack)


def test_what_is_known_only_while_it_is_done_is_refused_then(stack, pack):
    text = PACK.replace('== "rude"', 'and "a.0.json" in props["text"]')
    (pack / "rules.py").write_text(text)
    stack.declare(a={"text": "one"}, b={"text_of": "a"})
    assert "policies refuse it: no-rude of b" in stack.fails("up", "--policy-pack", str(pack)).out
    assert list(stack.files()) == ["a.0.json"]


def test_an_advisory_rule_prints_no_secret(stack, pack):
    stack.declare(a={"token": "canary-token-value"})
    result = stack.run("up", "--policy-pack", str(pack))
    assert result.code == 0
    assert "warning: a: no-token (advisory): has a token: " in result.out
    assert "canary" not in result.out


def test_levels_are_set_by_a_file(stack, pack, levels):
    stack.declare(a={"text": "rude", "token": "x" * 10})
    strict = levels({"all": "mandatory", "no-rude": {"enforcementLevel": "advisory"}})
    text = _refused(stack, pack, *strict)
    assert "warning: a: no-rude (advisory)" in text
    assert "policies refuse it: no-token of a" in text
    off = levels({"no-rude": "disabled"})
    assert stack.run("up", "--policy-pack", str(pack), *off).code == 0


def test_a_rule_that_raises_lets_nothing_pass(stack, pack):
    text = PACK.replace('yield "says a rude word"', "1 / 0")
    (pack / "rules.py").write_text(text)
    stack.declare(a={"text": "rude"})
    found = _refused(stack, pack)
    assert "no-rude (mandatory): the rule raised ZeroDivisionError('division by zero')" in found


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("def (", "cannot be loaded: SyntaxError"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError"),
        ("X = 1", "cannot be loaded: KeyError('RULES')"),
        (None, "cannot be loaded: FileNotFoundError"),
    ],
)
def test_a_pack_that_cannot_be_loaded(stack, pack, content, told):
    stack.declare(a={})
    path = pack / "rules.py"
    path.write_text(content) if content else path.unlink()
    assert told in _refused(stack, pack)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not JSON of levels by rule"),
        ("[]", "is not JSON of levels by rule"),
        ({"no-such": "advisory"}, "no rule is named 'no-such'; there are ['no-rude', 'no-token']"),
        ({"no-rude": "fatal"}, "no-rude is 'fatal'; it must be one of"),
        ({"no-rude": {}}, "is not JSON of levels by rule"),
        (None, "levels.json cannot be read"),
    ],
)
def test_levels_that_cannot_be_read(stack, pack, levels, content, told):
    stack.declare(a={})
    given = levels(content)
    if content is None:
        Path(given[1]).unlink()
    assert told in _refused(stack, pack, *given)
