"""A job's options from its configuration: each key of a flat dict becomes one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Value = int | float | str
MAY_BE_NONE = ("seed", "processes", "failures")  # ends of names whose number may be 0
HELP = {
    "loader_processes": "decode images beside training",
    "max_failures": "restarts after lost workers",
    "smoke_test": "one image, one worker, CPUs",
    "use_gpu": "one GPU for each worker",
}


def parser(prog: str, config: Mapping[str, Value]) -> argparse.ArgumentParser:
    """A parser whose options are the keys of `config`, with their values as defaults.

    Args:
        prog: what is typed before the options.
        config: strings, switches (`--name`, and `--no-name` to take it back when a run goes on),
            and numbers that are not negative. Whole numbers are at least 1, but for the seed and
            numbers of processes and of failures; what is called `..._probability` is at most 1.
    """
    p = argparse.ArgumentParser(prog=prog)
    for name, value in config.items():
        add(p, name, value)
    return p


def add(p: argparse.ArgumentParser, name: str, default: Value) -> None:
    """Adds the option of one key, for a parser that has others too."""
    option = f"--{name.replace('_', '-')}"
    said = f"{HELP[name]}; default: {default}" if name in HELP else f"default: {default}"
    if isinstance(default, bool):
        switch = argparse.BooleanOptionalAction
        p.add_argument(option, action=switch, default=default, help=HELP.get(name))
    else:
        p.add_argument(option, type=_type(name, default), default=default, help=said)


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
    least = 1 if isinstance(default, int) and not name.endswith(MAY_BE_NONE) else 0
    most = 1.0 if name.endswith("_probability") else float("inf")

    def number(text: str) -> int | float:
        value = int(text) if isinstance(default, int) else float(text)
        if not least <= value <= most:
            bound = f"less than {least}" if value < least else f"not within {least} and {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is {bound}")
        return value

    number.__name__ = type(default).__name__  # argparse names it where the text is no number
    return number
