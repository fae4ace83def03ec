"""A job's arguments and requests for resources, as data at the top of its script.

    ARGUMENTS = {
        "epochs": 20,
        "learning_rate": {"default": 1e-4, "help": "learning rate of Adam"},
        "seed": {"default": 1, "min": 0},
        "workers": 2,
        "use_gpu": False,
    }
    RESOURCES = [("workers", {"CPU": 1, "GPU": "use_gpu"})]

Both are literals: the client reads them and does not import the script (docs/train.md).
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ARGUMENTS, RESOURCES = "ARGUMENTS", "RESOURCES"
KEYS = {"default", "min", "max", "choices", "pattern", "help"}
RESERVED = {"job", "run", "storage"}  # in a job's configuration
NEGATIVE = re.compile(r"-\.?\d\S*")  # such as -1e-3, which argparse mistakes for an option

Arguments = Mapping[str, Any]
"""Defaults by name: a string, a number or a bool; or a dict of `default`, `help` and bounds.

Numbers have `min` and `max`, strings `choices` or `pattern`. Without `min`, whole numbers are at
least 1 and others at least 0. A default of None needs `min`, whose type is the argument's.
"""
Resources = Sequence[tuple[int | str, Any]]
"""The number of bundles, and Ray's resources in each: numbers, or names of arguments."""


def read(source: bytes) -> dict[str, Any]:
    """Return the literals ARGUMENTS and RESOURCES of a script, if it has them.

    Raises:
        SyntaxError: the script is not Python.
        ValueError: one of them is not a literal.
    """
    found = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        for name in names & {ARGUMENTS, RESOURCES}:
            try:
                found[name] = ast.literal_eval(node.value)
            except ValueError:
                raise ValueError(
                    f"line {node.lineno}: {name} is not a literal; write numbers, strings and "
                    "names of arguments only, the client does not run the script"
                ) from None
    return found


def defaults(arguments: Arguments) -> dict[str, Any]:
    """Return the default of each argument."""
    return {name: _described(value)["default"] for name, value in arguments.items()}


def parse(
    prog: str,
    arguments: Arguments,
    given: Sequence[str] | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments' values; those not given keep the values of the run's last start.

    Args:
        prog: the words before the arguments.
        arguments: the job's.
        given: None for those of the command line.
        earlier: the configuration of the run's last start, None before the first.

    Raises:
        ValueError: `arguments` does not follow the rules.
    """
    if taken := sorted(RESERVED & arguments.keys()):
        raise ValueError(
            f"{ARGUMENTS} has {', '.join(taken)}, which a job's configuration has already: "
            "choose another name"
        )
    p = argparse.ArgumentParser(prog=prog)
    for name, value in arguments.items():
        _add(p, name, _described(value))
    p.set_defaults(**{name: value for name, value in (earlier or {}).items() if name in arguments})
    return vars(p.parse_args(_joined(sys.argv[1:] if given is None else given)))


def bundles(resources: Resources, config: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return a job's resources, one bundle for each worker or task.

    Args:
        resources: the job's.
        config: values of its arguments.

    Raises:
        ValueError: `resources` does not follow the rules.
    """

    def amount(value: object) -> float:
        number = config.get(value) if isinstance(value, str) else value
        if not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
            raise ValueError(f"{RESOURCES} has {value!r}, not a number or an argument with one")
        return float(number)

    found: list[dict[str, float]] = []
    pairs: list[Any] = resources if isinstance(resources, list) else [resources]
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise ValueError(
                f"{RESOURCES} has {pair!r}: it must be a list of pairs: a number, a dict"
            )
        count, asked = pair
        bundle = {str(name): number for name, value in asked.items() if (number := amount(value))}
        found += [bundle] * int(amount(count))
    return found


def differences(
    earlier: Mapping[str, Any] | None, config: Mapping[str, Any], fixed: Sequence[str]
) -> str:
    """Describes fixed arguments that differ from the run's last start; "" where none does."""
    return "; ".join(
        f"{name} was {earlier.get(name)!r}, now {config[name]!r}"
        for name in fixed
        if earlier and earlier.get(name) != config[name]
    )


def _joined(given: Sequence[str]) -> list[str]:
    """Joins a negative number with its option into one word, as `--shift=-1e-3`."""
    joined: list[str] = []
    for word in given:
        if NEGATIVE.fullmatch(word) and joined and re.fullmatch("--[^=]+", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _described(value: object) -> dict[str, Any]:
    described = value if isinstance(value, dict) else {"default": value}
    if not described.keys() <= KEYS or not {"default"} <= described.keys():
        raise ValueError(
            f"{ARGUMENTS} has {value!r}: a dict needs a default, and may have "
            f"{', '.join(sorted(KEYS - {'default'}))}"
        )
    return described


def _add(p: argparse.ArgumentParser, name: str, described: dict[str, Any]) -> None:
    option, default = f"--{name.replace('_', '-')}", described["default"]
    said = [str(described["help"]).replace("%", "%%")] if "help" in described else []
    if isinstance(default, bool):
        switch = argparse.BooleanOptionalAction
        p.add_argument(option, action=switch, default=default, help="".join(said) or None)
        return
    said += [] if default is None else [f"(default: {default})"]
    p.add_argument(
        option,
        type=_text(described) if isinstance(default, str) else _number(described),
        default=default,
        choices=described.get("choices"),
        help=" ".join(said),
    )


def _text(described: dict[str, Any]) -> Callable[[str], str]:
    def text(given: str) -> str:
        if not re.fullmatch(described.get("pattern", ".*"), given):
            raise argparse.ArgumentTypeError(f"{given!r} is not {described.get('help')}")
        return given

    return text


def _number(described: dict[str, Any]) -> Callable[[str], int | float]:
    example = described["default"] if described["default"] is not None else described.get("min")
    if not isinstance(example, int | float):
        raise ValueError(  # noqa: TRY004 - about the data, like the others here
            f"{ARGUMENTS} has {described!r}: the default is not a string, number or bool"
        )
    kind = type(example)
    least = described.get("min", 1 if kind is int else 0)
    most = described.get("max", math.inf)

    def number(text: str) -> int | float:
        value = kind(text)
        if not (least <= value <= most and math.isfinite(value)):
            bound = f"less than {least}" if value < least else f"not within {least} and {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is {bound}")
        return value

    number.__name__ = kind.__name__  # argparse names it where the text is not a number
    return number
