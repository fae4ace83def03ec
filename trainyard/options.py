"""A job's arguments: bounds for argparse, values of a resumed run, and the workers' request.

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=at_least(1), default=20, help="epochs in all")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")

The client checks the arguments before it uploads the job: client/script_parser.py.
"""

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
HELP = {
    "epochs": "epochs in all",
    "seed": "fixes what is drawn at random",
    "workers": "processes that train, or the fewest and the most, as in 1:4",
    "max_failures": "restarts of lost workers",
    "hang_minutes": "that a batch may take; 0: for ever",
}
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


def worker_count(text: str) -> int | str:
    """Return an argument's type: a number of workers, or the fewest and the most, as in `1:4`."""
    try:
        least, most = number_range(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number from 1 on, or a range such as 1:4"
        ) from None
    return f"{least}:{most}" if ":" in text else least


def number_range(text: str) -> tuple[int, int]:
    """Return the least and the most of `4`, or of `1:4`; ValueError for another text."""
    least, colon, most = text.partition(":")
    found = int(least), int(most if colon else least)
    if not text.isascii() or not 1 <= found[0] <= found[1]:
        raise ValueError(text)
    return found


def worker_range(config: Config) -> tuple[int, int]:
    """Return the fewest and the most workers that a configuration asks for.

    Raises:
        TypeError, ValueError: `workers` or `num_workers` is neither a number nor a range.
    """
    found = config.get("workers", config.get("num_workers", 0))
    return number_range(found) if isinstance(found, str) else (int(found), int(found))


def arguments(**defaults: float | str) -> argparse.ArgumentParser:
    """Return a parser with an option for each default, and with those that every job has.

    `arguments(epochs=5, learning_rate=1e-3)` adds `--epochs`, whole numbers from 1 on, and
    `--learning-rate`, numbers from 0 on. A text's option takes any text.
    """
    parser = argparse.ArgumentParser(
        formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    bounds: dict[type, Callable[[str], Any]] = {int: at_least(1), float: at_least(0.0), str: str}
    common = {"seed": 1, "workers": 1, "max_failures": 3, "hang_minutes": 30.0}
    for name, default in (common | defaults).items():
        kind = at_least(0) if name in {"seed", "max_failures"} else bounds[type(default)]
        kind = worker_count if name == "workers" else kind
        text = HELP.get(name, name.replace("_", " "))
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=text)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--cpu", action=flag, default=False, help="CPUs, also on GPU nodes")
    return parser


def matching(pattern: str, description: str) -> Callable[[str], str]:
    """Return an argument's type: texts that match a regular expression from beginning to end.

    The description names the allowed texts in the message for others.
    """

    def text(given: str) -> str:
        if not re.fullmatch(pattern, given):
            raise argparse.ArgumentTypeError(f"{given!r} is not {description}")
        return given

    return text


def absolute_path(given: str) -> str:
    """An argument's type: a path from the root, which each node reads as its own."""
    return matching("/.*", "an absolute path, such as /data/mine")(given)


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

    `workers` or `num_workers` is their number, or a range, of which the fewest count. Each gets
    `cpus_per_worker` (default: 1) and `gpus_per_worker`. A trial gets `cpus_per_trial` and
    `gpus_per_trial`. With an argument `cpu`, the GPUs (default: 1) are for nodes that have them: on
    others, and with `--cpu`, there are none. Without these arguments, or if one is not an amount,
    the list is empty. `nodes` are also those that the cluster's autoscaler may start.
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
        why = f"the job asks for none; see --gpus-per-{unit} and --cpu in docs/jobs.md"
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
    try:
        return "worker", worker_range(config)[0]
    except (OverflowError, TypeError, ValueError):  # a script of the user means something else
        return "worker", None


def _room(bundle: Mapping[str, float], nodes: Nodes) -> int:
    """Return how many equal bundles the nodes can hold at a time."""
    return sum(
        min(int(node.get(name, 0) / amount + ROUNDING) for name, amount in bundle.items())
        for node in nodes
        if bundle
    )


def differences(earlier: Config | None, config: Config, names: Iterable[str]) -> str:
    """Describes arguments that differ from the run's last start: `epochs 3 → 6`; "" for none."""
    return ", ".join(
        f"{name} {earlier.get(name)!r} → {config[name]!r}"
        for name in names
        if earlier and earlier.get(name) != config[name]
    )
