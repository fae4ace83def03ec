"""Differences between two forms of a resource, by paths of its properties.

A manifest of Kubernetes is one property: shown whole, it would hide its differences.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.values import Properties, is_secret, mask

HIDDEN = "__"  # begins properties that tell how a resource is made, not its state
CONTEXT = 30  # characters before a difference that are shown with it
LONGEST = 200  # characters of a value or line that is shown
SHORT, MOST_TOLD = 40, 3  # characters of a value, and changes, in a reason
STARTED = ("command", "environment")  # properties of what runs, which is started again with others
ADDRESS = "--node-ip-address="  # in the command of a node of Ray
OPTION = re.compile(r"--([\w-]+)=")  # begins a word of a command
LAST_NAME = re.compile(r"[^.\[\]]*[^.\[\]\d][^.\[\]]*")  # of a path, without indexes
MOST_LINES = 100  # of the differences of one text


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


def cut_values(
    olds: Properties, news: Properties, longest: int, clean: Callable[[str], str] = str
) -> dict[str, tuple[str, str]]:
    """Old and new value of each difference by its path, cut as `excerpts` does, secrets hidden."""

    def show_value(value: Any) -> str:
        return "nothing" if value is None else clean(str(mask(value)))

    return {
        path: excerpts(show_value(old), show_value(new), longest)
        for name in sorted(olds.keys() | news.keys())
        if not name.startswith(HIDDEN)
        for path, old, new in differences(name, olds.get(name), news.get(name))
    }


def resuming(olds: Properties, news: Properties, runs: Mapping[str, Any]) -> str:
    """The runs that resume as a node of Ray is started again; "" for none.

    `runs` has their names by the address of the node, which its command has.
    """
    words = olds.get("command")
    flags = {*map(str, words)} if isinstance(words, list) else set()
    names = [name for at, found in runs.items() if f"{ADDRESS}{at}" in flags for name in found]
    changed = any(olds.get(name) != news.get(name) for name in STARTED)
    if not names or not changed or "--head" in flags:  # whose jobs end with it
        return ""
    return f"run {names[0]} resumes" if len(names) == 1 else f"runs {', '.join(names)} resume"


def reason(olds: Properties, news: Properties, clean: Callable[[str], str] = str) -> str:
    """A resource's first changes, in units of people: `memory 7.1 → 14.1 GiB`.

    One value that stands in several places is told once, and a text that is long by its name.
    """
    found: dict[str, str] = {}
    changed = cut_values(olds, news, SHORT, clean)
    for path, both in changed.items():
        words = {word[1] for word in map(OPTION.match, both) if word}
        name = words.pop() if len(words) == 1 else LAST_NAME.findall(path)[-1]
        values = [value.removeprefix(f"--{name}=") for value in both]
        text = " → ".join(map(_gib, values) if "memory" in name.lower() else values)
        is_cut = "…" in text or "\n" in text
        found.setdefault(text, name if is_cut else f"{name} {text.replace(' GiB →', ' →')}")
    told = sorted({*found.values()}, key=lambda text: ("memory" not in text, len(text), text))
    more = f" and {len(told) - MOST_TOLD} more (--diff)" if told[MOST_TOLD:] else ""
    restarts = "; restarts" if any(path.startswith(STARTED) for path in changed) else ""
    return ", ".join(told[:MOST_TOLD]) + more + restarts


def _gib(amount: str) -> str:
    """An amount of bytes, or of MiB where it is small, in GiB; other texts as they are."""
    unit = 2**10 if len(amount) < len("10000000") else 2**30
    return f"{int(amount) / unit:.1f} GiB" if amount.isdecimal() else amount


def describe_differences(
    olds: Properties, news: Properties, clean: Callable[[str], str] = str
) -> Iterator[str]:
    """Lines about what differs, by sorted paths; texts of several lines as unified differences.

    Of a new resource's texts only the length is told. `clean` hides secrets that are not marked,
    such as one in a file.
    """
    for name in sorted(olds.keys() | news.keys()):
        if not name.startswith(HIDDEN):
            for path, old, new in _leaves(name, olds.get(name), news.get(name), clean):
                yield from _described(path, old, new, clean, is_new=not olds)


def _leaves(
    path: str, old: Any, new: Any, clean: Callable[[str], str]
) -> Iterator[tuple[str, Any, Any]]:
    """As `differences`, also inside values that come or go, and inside texts that are JSON."""
    for at, before, after in differences(path, old, new):
        values = [_parsed(value, clean) for value in (before, after)]
        given: Any = next((value for value in values if value is not None), None)
        both: list[Any] = [type(given)() if value is None else value for value in values]
        # A list such as a command's words is shown whole where it is added or removed.
        is_list = None in (before, after) and isinstance(given, list)
        if (
            isinstance(given, dict | list)
            and not any(map(is_secret, both))
            and type(both[0]) is type(both[1])
            and both[0] != both[1]
            and not (is_list and not any(isinstance(item, dict) for item in given))
        ):
            yield from _leaves(at, both[0], both[1], clean)
        else:
            yield at, before, after


def _parsed(value: Any, clean: Callable[[str], str]) -> Any:
    """The object or list that a text without secrets has in JSON; else the value."""
    if isinstance(value, str) and value[:1] in ("{", "[") and clean(value) == value:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _described(
    path: str, old: Any, new: Any, clean: Callable[[str], str], *, is_new: bool
) -> Iterator[str]:
    texts = [value for value in (old, new) if value is not None]
    if all(isinstance(text, str) for text in texts) and any("\n" in text for text in texts):
        was, now = (clean(text or "").splitlines() for text in (old, new))
        if is_new:
            yield f"{path}: {len(now)} lines"
            return
        changed = [*difflib.unified_diff(was, now, lineterm="")][2:]
        yield f"{path}:" if changed else f"{path}: a secret in it"
        yield from (f"  {line[:LONGEST]}" for line in changed[:MOST_LINES])
        if len(changed) > MOST_LINES:
            yield f"  and {len(changed) - MOST_LINES} lines more"
        return
    before, after = (clean(repr(mask(value))) for value in (old, new))
    if old is None:
        yield f"{path}: {excerpts('', after, LONGEST)[1]}"
    else:
        yield f"{path}: {' => '.join(excerpts(before, after, LONGEST))}"


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
