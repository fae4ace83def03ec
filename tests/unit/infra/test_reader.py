"""Reading raw settings: a value that cannot be used is told, and never ends the reading."""

import pytest

from infra.reader import Reader


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "NaN", "[" * 100_000])
def test_what_is_no_object_is_told_and_read_as_an_empty_one(text: str) -> None:
    reader = Reader({"worker": text})
    assert reader.object("worker", "write its fields") == {}
    assert len(reader.faults) == 1


@pytest.mark.parametrize("text", ["", "[", "{}", "1", "null", "{" * 100_000])
def test_what_is_no_array_is_told_and_read_as_an_empty_one(text: str) -> None:
    reader = Reader({"allowedCidrs": text})
    assert reader.array("allowedCidrs", "write a list") == []
    assert len(reader.faults) == 1


def test_what_is_not_set_is_told_once() -> None:
    reader = Reader({})
    reader.boolean("grafana")
    reader.integer("workers", 1, 64)
    reader.object("worker", "write its fields")
    reader.array("allowedCidrs", "write a list")
    assert [fault.partition(" ")[0] for fault in reader.faults] == [
        "grafana",
        "workers",
        "worker",
        "allowedCidrs",
    ]


def test_blanks_around_a_text_mean_nothing() -> None:
    assert Reader({"owner": " ", "bucket": " ray\n"}).text("owner") == ""
    assert Reader({"bucket": " ray\n"}).text("bucket") == "ray"


def test_digits_of_other_scripts_are_no_number() -> None:
    reader = Reader({"workers": "\u0663"})
    reader.integer("workers", 1, 64)
    assert "whole number" in reader.faults[0]


@pytest.mark.parametrize("value", ["Monkey", "a=b", '["PIP_TOKEN"]', "host:8080"])
def test_ordinary_values_are_shown(value: str) -> None:
    reader = Reader({})
    reader.fault("bucket", value, "must be lowercase", "change it")
    assert reader.faults == [f"bucket = {value!r}: must be lowercase; change it"]
