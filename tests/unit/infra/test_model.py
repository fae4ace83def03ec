"""Settings as text: how strictly each type is read, and what a message shows of a value."""

from typing import get_args

import pulumi
import pytest

from cluster.model import Fault, Model, bare_type, json_type, parsed
from infra.settings import config
from tests.unit.infra.conftest import is_named

DECLARED = config.TREE.declared()


def _of(kind: str) -> list[str]:
    return [key for key, each in DECLARED.items() if json_type(each.annotation) == kind]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", "null", "NaN", '""', "[" * 100_000, '{"a":' * 100_000],
    ids=lambda text: text[:6],
)
@pytest.mark.parametrize("key", _of("object"))
def test_what_is_not_an_object_is_named(host, key, text):
    is_named(key, "must be an object", {key: text}, host)


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "1", "null", '""', "{" * 100_000], ids=lambda text: text[:6]
)
@pytest.mark.parametrize("key", _of("array"))
def test_what_is_not_an_array_is_named(host, key, text):
    is_named(key, "must be an array", {key: text}, host)


@pytest.mark.parametrize("text", ["", "\u0663", "1_0", "+3", "3.0", "1e1", "true", "9" * 400])
@pytest.mark.parametrize("key", _of("integer"))
def test_only_digits_of_ascii_are_a_whole_number(host, key, text):
    is_named(key, "whole ", {key: text}, host)


@pytest.mark.parametrize("text", ["", "True", "1", "yes", '"true"'])
@pytest.mark.parametrize("key", _of("boolean"))
def test_only_two_words_are_true_or_false(host, key, text):
    is_named(key, "must be true or false", {key: text}, host)


# What each type of JSON is not, by the name of a field's type.
WRONG = {
    "int": ('"9"', "9.5", "9.0", "true", "null"),
    "float": ('"2"', "true", "null", "1e400"),
    "bool": ('"true"', "1", "null"),
    "str": ("1", "true", "[]", "null"),
}
FIELDS = [
    (key, name, text)
    for key, declared in DECLARED.items()
    for inner in [bare_type(get_args(declared.annotation)[0]) if key in _of("array") else None]
    for kind in [inner or bare_type(declared.annotation)]
    if isinstance(kind, type) and issubclass(kind, Model)
    for name, field in kind.declared().items()
    for text in WRONG.get(getattr(bare_type(field.annotation), "__name__", ""), ())
]


@pytest.mark.parametrize(("key", "name", "text"), FIELDS)
def test_fields_of_an_object_are_read_as_strictly(host, key, name, text):
    fields, place = f'{{"{name}": {text}}}', f"{key}.{name}"
    if key in _of("array"):
        fields, place = f"[{fields}]", f"{key}[0].{name}"
    is_named(place, "must be", {key: fields}, host)


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ('"\\ud800": 1', "must be a text of Unicode"),
        ('"memory_mib": 100', "did you mean memoryMib?"),
    ],
)
def test_names_of_fields_are_read_as_strictly(host, fields, bound):
    with pytest.raises(pulumi.RunError) as raised:
        config.parse({"worker": f"{{{fields}}}"}, host, "dev")
    assert bound in str(raised.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("owner", " ", ""),
        ("storeFrom", " prod\n", "prod"),
        ("workers", " 3 ", 3),
        ("keepData", " true\n", True),
        ("hosts", " [] ", []),
        ("dataset", " {} ", None),
    ],
)
def test_blanks_around_a_text_mean_nothing(key, text, value):
    assert parsed(DECLARED[key], text) == value


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        *[("owner", value, value) for value in ("Monkey", "a=b", '["PIP_TOKEN"]', "host:8080")],
        ("owner", "PIP_TOKEN=abc", "(not shown)"),
        ("owner", '{"password": "abc"}', "(not shown)"),
        ("owner", "https://me:abc@host", "(not shown)"),
        ("lambdaApiKey", "abc", "(not shown)"),
    ],
)
def test_a_message_shows_values_that_are_not_secrets(key, value, shown):
    line = Fault(key, "must be lowercase", "change it").line({key: value})
    assert line == f"{key} = {shown!r}: must be lowercase; change it"
