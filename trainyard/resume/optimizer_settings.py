"""Settings of optimizers and schedulers: the command line's take precedence over restored ones.

An optimizer's state has its learning rate and other settings too, and loading them would undo the
command line. So each checkpoint notes what its start asked for. What the next start asks for
otherwise is applied.

A copy of the new scheduler repeats the steps that are done, with a stand-in for the optimizer. So
rates equal an uninterrupted run's, also with nested and fixed-length schedulers.
"""

import copy
import operator
import warnings
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from trainyard.errors import JobError

START = ""  # in the settings, next to the names of parts: facts about the start itself
STEPS_OF = ("workers", "batch_size")  # of these facts, which determine an epoch's steps
SCALED = ("lr", "initial_lr", "max_lr", "min_lr")
SCHEDULED = (*SCALED, "momentum", "betas")
Settings = dict[str, list[dict[str, Any]]]
"""By part: settings of each group of parameters, or the first state of a scheduler."""
Schedulers = Mapping[str, Any]
"""By part: copies of schedulers, with stand-ins for their optimizers."""


def current_settings(parts: Mapping[str, Any]) -> Settings:
    """Return the settings of newly made optimizers and schedulers."""
    return {
        name: copy.deepcopy(found) for name, part in parts.items() if (found := _settings(part))
    }


def schedulers(parts: Mapping[str, Any]) -> Schedulers:
    """Return copies of the schedulers that count their steps and can be copied."""
    found, memo = {}, dict[int, Any]()
    for name, part in parts.items():
        if (optimizer := _of(part)) is not None and _steps(part) is not None:
            groups = copy.deepcopy(_settings(optimizer))  # only these: tensors may fill the memory
            stand_in = SimpleNamespace(param_groups=groups, step=lambda: None)
            memo.setdefault(id(optimizer), stand_in)
            with suppress(Exception):
                found[name] = copy.deepcopy(part, memo)
    return found


def apply(parts: Mapping[str, Any], then: Any, now: Settings, made: Schedulers) -> None:
    """Applies the settings of this start where they differ from the earlier start's.

    A rate that follows from a measurement (ReduceLROnPlateau), or that training changed by itself,
    is scaled: half of the rate asked for stays half.

    Args:
        parts: as loaded.
        then: the settings that the start that stored them asked for.
        now: the settings that this start asks for.
        made: the schedulers of this start, before they were loaded.

    Raises:
        JobError: a schedule ends before the steps that are done.
    """
    then = then if isinstance(then, dict) else {}
    # No state has the functions that a schedule calls, which may follow from these facts.
    is_new = then.get(START, now.get(START)) != now.get(START)
    # With other workers or batches an epoch has other steps: keep the restored schedule.
    facts = (before[0] if (before := each.get(START)) else {} for each in (then, now))
    earlier, start = ({key: each.get(key) for key in STEPS_OF} for each in facts)
    is_resized = START in then and earlier != start
    found = {name: _changes(then.get(name, []), now.get(name, [])) for name in parts}
    changed = {}  # optimizers
    for name, part in parts.items():
        optimizer = _of(part)
        if any(found[name]) or (is_new and optimizer is not None):
            changed[id(optimizer or part)] = optimizer or part
        if optimizer is None:
            for group, changes in zip(getattr(part, "param_groups", []), found[name], strict=False):
                for key, (old, new) in changes.items():
                    group[key] = scale_rate(group.get(key), old, new) if key in SCALED else new
    for optimizer in changed.values():
        mine = [name for name, part in parts.items() if _of(part) is optimizer]
        is_made = made.keys() >= {*mine} and not is_resized
        if not (is_made and _repeat(parts, {name: made[name] for name in mine})):
            for name in mine:
                news = {key: new for changes in found[name] for key, (_, new) in changes.items()}
                if is_resized:
                    news = {key: new for key, new in news.items() if key == "base_lrs"}
                parts[name].load_state_dict(parts[name].state_dict() | news)


def check_length(parts: Mapping[str, Any], share: float) -> None:
    """Raises a JobError for a schedule that ends within the next steps: a share of those done."""
    for name, each in schedulers(parts).items():
        _step({name: each}, {name: max(1, round(share * _steps(each)))})


def scale_rate(loaded: Any, then: Any, now: Any) -> Any:
    """Return a loaded rate, scaled from the rate asked for then to the one asked for now."""
    return now if not then or _same(loaded, then) else loaded * (now / then)


def _repeat(parts: Mapping[str, Any], made: Schedulers) -> bool:
    """Brings one optimizer's schedulers and rates to where new ones are by now, if it can."""
    if not _step(made, {name: _steps(parts[name]) - _steps(each) for name, each in made.items()}):
        return False
    for name, each in made.items():
        parts[name].load_state_dict(each.state_dict())
        for group, new in zip(_of(parts[name]).param_groups, _of(each).param_groups, strict=True):
            group.update({key: new[key] for key in SCHEDULED if key in new})
    return True


def _step(made: Schedulers, steps: Mapping[str, int]) -> bool:
    """Has schedulers do so many steps each, in turn; returns whether all can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stand-in for the optimizer does no steps
        for number in range(max(steps.values(), default=0)):
            for name in [name for name in made if number < steps[name]]:
                try:
                    made[name].step()
                except ValueError as error:
                    raise JobError(
                        f"{name} ({type(made[name]).__name__}) is too short for this run ({error}):"
                        " make it longer in the script, ask for fewer epochs, or take a new --name"
                    ) from None
                except Exception:  # it takes a measurement, or more of an optimizer
                    return False
    return True


def _steps(scheduler: Any) -> Any:
    """Return how many steps a scheduler has done; None where it does not count them."""
    inner = getattr(scheduler, "_schedulers", None)  # of ChainedScheduler, which does not
    return getattr(scheduler, "last_epoch", _steps(inner[0]) if inner else None)


def _of(part: Any) -> Any:
    """Return the optimizer of a scheduler; None for other parts."""
    optimizer = getattr(part, "optimizer", None)
    is_scheduler = hasattr(optimizer, "param_groups") and not hasattr(part, "param_groups")
    return optimizer if is_scheduler and hasattr(part, "step") else None


def _settings(part: Any) -> list[dict[str, Any]]:
    if _of(part) is not None:
        return [part.state_dict()]
    groups = getattr(part, "param_groups", [])
    return [{key: value for key, value in group.items() if key != "params"} for group in groups]


def _changes(then: list[Any], now: list[Any]) -> list[dict[str, tuple[Any, Any]]]:
    """Return the settings that differ, of each group: old and new values by name."""
    return [
        {key: (old[key], new[key]) for key in new if key in old and not _same(old[key], new[key])}
        for old, new in zip(then, now, strict=False)
        if len(then) == len(now)
    ]


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(operator.eq(one, other))
    except (RuntimeError, ValueError):  # tensors and arrays of several values
        return str(one) == str(other)
