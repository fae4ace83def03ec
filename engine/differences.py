"""Differences between two forms of a resource, by paths of its properties.

A manifest of Kubernetes is one property: shown whole, it would hide its differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.values import is_secret

CONTEXT = 30  # characters before a difference that are shown with it


def differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The path, the old and the new value of each difference; None for a missing value.

    A path looks like `manifest.spec.groups[1].maxReplicas`. Secrets are marked in both values.
    """
    if old == new:
        return
    both = [type(each) for each in (old, new) if not is_secret(each)]
    if both == [dict, dict]:
        for key in sorted(old.keys() | new.keys()):
            yield from differences(f"{path}.{key}", old.get(key), new.get(key))
    elif both == [list, list]:
        yield from _of_lists(path, old, new)
    else:
        yield path, old, new


def _of_lists(path: str, old: list[Any], new: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """The same for lists: equal items at their ends are paired, so one more item shows as one."""
    shorter = min(len(old), len(new))
    before = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    rest = shorter - before if len(old) != len(new) else 0
    after = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    olds, news = old[before : len(old) - after], new[before : len(new) - after]
    for index in range(max(len(olds), len(news))):
        left, right = (each[index] if index < len(each) else None for each in (olds, news))
        yield from differences(f"{path}[{before + index}]", left, right)


def excerpts(old: str, new: str, longest: int) -> tuple[str, str]:
    """Two texts, cut to what differs if one is longer than `longest` characters."""
    if max(len(old), len(new)) <= longest:
        return old, new
    pairs = enumerate(zip(old, new, strict=False))
    same = next((i for i, (one, other) in pairs if one != other), min(len(old), len(new)))
    begin = max(0, same - CONTEXT)

    def cut(text: str) -> str:
        end = begin + longest
        left, right = ("…" if begin else ""), ("…" if len(text) > end else "")
        return f"{left}{text[begin:end]}{right}"

    return cut(old), cut(new)
