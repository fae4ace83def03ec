"""What a start asks of its optimizers, which counts more than the state that it goes on from.

An optimizer's state has its learning rate and other settings too. Loaded, they would undo what the
command line says now. So each checkpoint notes what its start had asked for, and where the next one
asks for something else, that is taken.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

SCALED = ("lr", "initial_lr", "max_lr", "min_lr")
Asked = dict[str, list[dict[str, Any]]]
"""By part: settings of each group of parameters."""


def of(parts: Mapping[str, Any]) -> Asked:
    """The settings of optimizers and schedulers, which were just made."""
    return {name: found for name, part in parts.items() if (found := _settings(part))}


def apply(parts: Mapping[str, Any], then: Any, now: Asked) -> None:
    """Takes what is asked for now where it is not what was asked for then.

    A rate that was changed while it trained, as by a scheduler, is scaled: half of what was asked
    for stays half.

    Args:
        parts: as loaded.
        then: what the start that stored them had asked for.
        now: what this one asks for.
    """
    for name, groups in now.items():
        before = then.get(name, []) if isinstance(then, dict) else []
        if len(before) != len(groups):
            continue
        loaded = _groups(parts[name])
        for group, old, new in zip(loaded, before, groups, strict=True):
            for key, value in new.items():
                if key in old and not _same(old[key], value):
                    is_scaled = key in SCALED
                    group[key] = scaled(group.get(key), old[key], value) if is_scaled else value
        if hasattr(parts[name], "base_lrs"):
            parts[name].base_lrs = [group["lr"] for group in loaded]


def scaled(loaded: Any, then: Any, now: Any) -> Any:
    """A rate as it was loaded, in proportion to what is asked for now and was then."""
    return now if not then or _same(loaded, then) else loaded * (now / then)


def _settings(part: Any) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in group.items() if key != "params"} for group in _groups(part)
    ]


def _groups(part: Any) -> list[dict[str, Any]]:
    """An optimizer's groups; of a scheduler, the rates that it begins with."""
    if hasattr(part, "base_lrs"):
        return [{"lr": rate} for rate in part.base_lrs]
    return list(getattr(part, "param_groups", []))


def _same(one: Any, other: Any) -> bool:
    return bool(operator.eq(one, other))
