"""Optimizer settings that a start asks for; they take precedence over the restored state.

An optimizer's state also has its learning rate and other settings. Loading them would undo the
command line. So each checkpoint notes the settings that its start asked for, and where the next
start asks for others, those are used.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

SCALED = ("lr", "initial_lr", "max_lr", "min_lr")
Asked = dict[str, list[dict[str, Any]]]
"""By part: settings of each group of parameters."""


def of(parts: Mapping[str, Any]) -> Asked:
    """Return the settings of newly made optimizers and schedulers."""
    return {name: found for name, part in parts.items() if (found := _settings(part))}


def apply(parts: Mapping[str, Any], then: Any, now: Asked) -> None:
    """Applies the settings of this start where they differ from those of the earlier one.

    A rate that training has changed, for example by a scheduler, is scaled: half of the rate asked
    for stays half.

    Args:
        parts: as loaded.
        then: the settings that the start that stored them asked for.
        now: the settings that this start asks for.
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
    """Return a loaded rate, scaled from the rate asked for then to the one asked for now."""
    return now if not then or _same(loaded, then) else loaded * (now / then)


def _settings(part: Any) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in group.items() if key != "params"} for group in _groups(part)
    ]


def _groups(part: Any) -> list[dict[str, Any]]:
    """Return an optimizer's groups, or the initial rates of a scheduler."""
    if hasattr(part, "base_lrs"):
        return [{"lr": rate} for rate in part.base_lrs]
    return list(getattr(part, "param_groups", []))


def _same(one: Any, other: Any) -> bool:
    return bool(operator.eq(one, other))
