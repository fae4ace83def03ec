"""A job's arguments: bounds for argparse, values of a resumed run, and the workers' request.

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=at_least(1), default=20, help="epochs in all")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")

The client checks the arguments before it uploads the job: client/script_parser.py.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

NEGATIVE = re.compile(r"-\.?\d\S*[eE_]\S*")  # such as -1e-3, which argparse mistakes for an option
Config = Mapping[str, Any]
Nodes = Sequence[Mapping[str, float]]
"""What each node offers, by Ray's names."""
ROUNDING = 1e-6  # three times 0.1 fit into 0.3


def at_least(least: float) -> Callable[[str], float]:
    """Return an argument's type: finite numbers of the type of `least`, from `least` on."""
    return between(least, math.inf)


def between(least: float, most: float) -> Callable[[str], float]:
    """Return an argument's type: finite numbers of the type of `least`, both bounds included."""
    kind = type(least)

    def number(text: str) -> float:
        value = kind(text)
        if not (least <= value <= most and math.isfinite(value)):
            bound = f"less than {least}" if value < least else f"not within {least} and {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is {bound}")
        return value

    number.__name__ = kind.__name__  # argparse names it where the text is not a number
    return number


def matching(pattern: str, description: str) -> Callable[[str], str]:
    """Return an argument's type: texts that match a pattern from beginning to end.

    Args:
        pattern: a regular expression.
        description: names the allowed texts in the message for others.
    """

    def text(given: str) -> str:
        if not re.fullmatch(pattern, given):
            raise argparse.ArgumentTypeError(f"{given!r} is not {description}")
        return given

    return text


def parse(
    parser: argparse.ArgumentParser,
    given: Sequence[str] | None = None,
    earlier: Config | None = None,
) -> dict[str, Any]:
    """Return the arguments' values; those not given keep the values of the run's last start.

    Abbreviated options are refused, since a new option could change their meaning. Without `given`
    the arguments are those of the command line.
    """
    parser.allow_abbrev = False
    words: list[str] = []
    for word in sys.argv[1:] if given is None else given:
        if NEGATIVE.fullmatch(word) and words and re.fullmatch("--[^=]+", words[-1]):
            words[-1] += f"={word}"
        else:
            words.append(word)
    names = vars(parser.parse_args(words))
    kept = {name: value for name, value in (earlier or {}).items() if name in names}
    return vars(parser.parse_args(words, argparse.Namespace(**kept)))


def workers(config: Config, nodes: Nodes) -> list[dict[str, float]]:
    """Return Ray's resources for each worker, or for a search's trial, by the arguments' names.

    `workers` or `num_workers` is their number. Each gets `cpus_per_worker` (default: 1) and
    `gpus_per_worker`. A trial gets `cpus_per_trial` and `gpus_per_trial`. With an argument `cpu`,
    the GPUs (default: 1) are for nodes that have them: on others, and with `--cpu`, there are none.

    Args:
        config: values of the arguments.
        nodes: what the cluster's nodes offer, also those that its autoscaler may start.

    Returns:
        One bundle for each; none without these arguments, or where one is not an amount.
    """
    unit, number = _unit(config)
    chooses = isinstance(config.get("cpu"), bool)  # else a script of the user means something else
    cpus = config.get(f"cpus_per_{unit}", 1)
    gpus = config.get(f"gpus_per_{unit}", int(chooses))
    if not all(
        isinstance(each, int | float) and 0 <= each < math.inf for each in (number, cpus, gpus)
    ):
        return []
    bundle = {name: float(n) for name, n in {"CPU": cpus, "GPU": gpus}.items() if n}
    # A smoke test is for CPUs.
    if chooses and (
        config["cpu"] or config.get("smoke_test") is True or _room(bundle, nodes) < number
    ):
        bundle.pop("GPU", None)
    return [bundle] * int(number)


def idle_gpus(config: Config, nodes: Nodes) -> str:
    """Return a line about GPUs that a training on CPUs leaves idle, and the option; "" for none."""
    bundles, gpus = workers(config, nodes), sum(node.get("GPU", 0) for node in nodes)
    if not bundles or "GPU" in bundles[0] or not gpus:
        return ""
    unit, number = _unit(config)
    each = config.get(f"gpus_per_{unit}", 1)
    if config.get("cpu") is True:
        why = "--cpu says so; --no-cpu trains on it"
    elif config.get("smoke_test") is True:
        why = "--smoke-test says so"
    elif not isinstance(config.get("cpu"), bool) or not each:
        why = f"the job asks for none; see --gpus-per-{unit} and --cpu in docs/train.md"
    else:
        asked = {"GPU": each} | bundles[0]
        names = ", ".join(f"{name} {amount:g}" for name, amount in asked.items())
        option = "num-workers" if "num_workers" in config else "workers"
        why = (
            f"the nodes have room for {_room(asked, nodes)} of {number} {unit}s with {names}; ask "
            f"for fewer --{option} or --cpus-per-{unit}"
        )
    return f"training on CPUs, and GPU {gpus:g} of the cluster stays idle: {why}"


def request(config: Config, nodes: Nodes) -> list[dict[str, float]]:
    """Return the bundles of a job's workers and of its tasks of Ray Data: a CPU each."""
    tasks = config.get("data_cpus", 0)
    return workers(config, nodes) + [{"CPU": 1.0}] * (tasks if isinstance(tasks, int) else 0)


def _unit(config: Config) -> tuple[str, Any]:
    """Return the unit of the resources, and how many of it there are."""
    if {"cpus_per_trial", "gpus_per_trial"} & config.keys():
        return "trial", 1
    return "worker", config.get("workers", config.get("num_workers", 0))


def _room(bundle: Mapping[str, float], nodes: Nodes) -> int:
    """Return how many equal bundles the nodes can hold at a time."""
    return sum(
        min(int(node.get(name, 0) / amount + ROUNDING) for name, amount in bundle.items())
        for node in nodes
        if bundle
    )


def differences(earlier: Config | None, config: Config, names: Iterable[str]) -> str:
    """Describes arguments that differ from the run's last start; "" where none does."""
    return "; ".join(
        f"{name} was {earlier.get(name)!r}, now {config[name]!r}"
        for name in names
        if earlier and earlier.get(name) != config[name]
    )
