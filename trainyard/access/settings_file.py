"""Reads YAML that people write, JSON too, within bounds, so that no file takes all memory.

It is read as PyYAML does, except for two texts that the pulumi CLI does not quote: `config set`
writes `=` and `<<` as they are. To YAML 1.1 they are keys of mappings, and PyYAML refuses the whole
file that has one as a value.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from trainyard.access import users_file

FILE_CHARACTERS, FILE_BYTES = 2**20, 2**22
EXPANDED = 2**20  # characters of all values, with those of each alias counted again
VALUE = 32  # characters that a value counts for itself: its memory, and there may be many
MOST = f"{EXPANDED // VALUE} values or {EXPANDED} characters"
TEXT = 2**18  # characters of one value
DEPTH = 64  # of lists and mappings in each other
NO_TEXT = re.compile("[\x00\ud800-\udfff]")  # no program takes these in a text


class SettingsError(ValueError):
    """A file is not valid, or passes a bound; the message names the file, the value, the bound."""


# libyaml takes a tenth of the time, but its own composer measures nothing.
_BASES = (Composer, yaml.CSafeLoader) if yaml.__with_libyaml__ else (yaml.SafeLoader,)


class _Loader(*_BASES):  # type: ignore[misc]
    """Knows the tags of both texts, and measures while it reads."""

    def __init__(self, text: str) -> None:
        _BASES[-1].__init__(self, text)
        self.anchors: dict[str, yaml.Node] = {}
        self._sizes: dict[int, int] = {}  # of nodes that are read whole, by id
        self._read = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if is_alias and id(node) in self._sizes:
            return node
        parts, size, names = [] if is_alias else node.value, VALUE, Counter[str]()
        if isinstance(node, yaml.ScalarNode):
            parts, size = [], VALUE + len(node.value)
        elif isinstance(node, yaml.MappingNode):
            names.update(key.value for key, _ in parts if isinstance(key, yaml.ScalarNode))
            parts = [part for pair in parts for part in pair]
        self._read += size
        size += sum(self._sizes[id(part)] for part in parts)
        twice = [name for name, count in names.most_common(1) if count > 1]
        if is_alias:
            fault = "a part of it is an alias of the whole: write that part out"
        elif twice:
            fault = f"the key {twice[0][:80]!r} is there twice: remove one"
        elif max(size, self._read) > EXPANDED:
            fault = f"with its aliases it has more than {MOST}: write less"
        else:
            self._sizes[id(node)] = size
            return node
        raise yaml.MarkedYAMLError(problem=fault, problem_mark=node.start_mark)


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


for _tag in ("value", "merge"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def read(path: Path) -> Any:
    """Return the document of a file, None for an empty one.

    Raises:
        SettingsError: it is not valid, or passes a bound.
        OSError: it cannot be read, or is not text.
    """
    with path.open("rb") as file:
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise SettingsError(f"{path.name} has more than {FILE_BYTES} bytes: write less")
    return load(users_file.decoded(content, path), path.name)


def load(text: str, name: str) -> Any:
    """Return the document of a file's text; see `read`.

    Raises:
        SettingsError: it is not valid, or passes a bound.
    """
    if len(text) > FILE_CHARACTERS:
        raise SettingsError(f"{name} has more than {FILE_CHARACTERS} characters: write less")
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        where = f"{name}, line {error.problem_mark.line + 1}," if error.problem_mark else name
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise SettingsError(f"{where} is not valid YAML: {problem}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{name} is not valid YAML: {error}") from None
    check(document, name)
    return document


def check(value: Any, name: str, key: str = "", depth: int = 0) -> None:
    """Check the texts in a value and how deep it is; `key` is that of the value in its file.

    Raises:
        SettingsError: one of them passes a bound.
    """
    if depth > DEPTH:
        raise SettingsError(f"{name}: {key} is more than {DEPTH} deep: write it flatter")
    if isinstance(value, str):
        if len(value) > TEXT:
            bound = f"has {len(value)} characters, and a value at most {TEXT}: shorten it"
            raise SettingsError(f"{name}: {key} {bound}")
        if found := NO_TEXT.search(value):
            raise SettingsError(f"{name}: {key} has the character {found[0]!r}: remove it")
    parts = value.items() if isinstance(value, dict) else ()
    for step, part in enumerate(value) if isinstance(value, list) else parts:
        check(step, name, f"a key of {key}")
        check(part, name, f"{key}.{step}".lstrip(".")[:120], depth + 1)
