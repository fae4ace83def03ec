"""A job's options from its configuration: each key of a flat dict becomes one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Value = int | float | str


def parser(prog: str, config: Mapping[str, Value]) -> argparse.ArgumentParser:
    """A parser whose options are the keys of `config`, with their values as defaults.

    Args:
        prog: what is typed before the options.
        config: strings, and numbers that are not negative. Whole numbers are at least 1, but for
            the seed and numbers of processes; what is called `..._probability` is at most 1.
    """
    p = argparse.ArgumentParser(prog=prog)
    for name, value in config.items():
        p.add_argument(
            f"--{name.replace('_', '-')}",
            type=_type(name, value),
            default=value,
            help=f"default: {value}",
        )
    return p


def parse(
    p: argparse.ArgumentParser,
    arguments: Sequence[str] | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the arguments say; those left out are as in the run's last start.

    Args:
        p: the parser.
        arguments: None for those of the command line.
        earlier: the configuration of the run's last start, None before the first.
    """
    known = vars(p.parse_args([]))
    p.set_defaults(**{name: value for name, value in (earlier or {}).items() if name in known})
    return vars(p.parse_args(arguments))


def bundle(config: Mapping[str, Any]) -> dict[str, float]:
    """What a worker asks for, in Ray's resource names."""
    asked = {"GPU": config["gpus_per_worker"], "CPU": config["cpus_per_worker"]}
    return {name: amount for name, amount in asked.items() if amount}


def differences(
    earlier: Mapping[str, Any] | None, config: Mapping[str, Any], fixed: Sequence[str]
) -> str:
    """Says what differs from the run's last start among what must not; "" where nothing does."""
    return "; ".join(
        f"{name} was {earlier.get(name)!r}, now {config[name]!r}"
        for name in fixed
        if earlier and earlier.get(name) != config[name]
    )


def _type(name: str, default: Value) -> Callable[[str], Value]:
    if isinstance(default, str):
        return str
    least = 1 if isinstance(default, int) and name != "seed" and "processes" not in name else 0
    most = 1.0 if name.endswith("_probability") else float("inf")

    def number(text: str) -> int | float:
        value = int(text) if isinstance(default, int) else float(text)
        if not least <= value <= most:
            bound = f"less than {least}" if value < least else f"not within {least} and {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is {bound}")
        return value

    number.__name__ = type(default).__name__  # argparse names it where the text is no number
    return number
