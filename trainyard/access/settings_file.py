"""Reads YAML and JSON that people write, within bounds, so that no file takes all memory.

YAML is read as PyYAML does, except for two texts that the pulumi CLI does not quote: `config set`
writes `=` and `<<` as they are. To YAML 1.1 they are keys of mappings, and PyYAML refuses the whole
file that has one as a value.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

FILE_BYTES = 2**20
EXPANDED = 2**20  # characters of all values, with those of each alias counted again
VALUE = 32  # characters that a value counts for itself: its memory, and there may be many
TEXT = 2**16  # characters of one value
DEPTH = 64  # of lists and mappings in each other
DEEP = f"lists and mappings more than {DEPTH} deep in each other: write it flatter"
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


class SettingsError(ValueError):
    """A file is not valid, or passes a bound; the message names the file, the value, the bound."""


class _Loader(yaml.SafeLoader):
    """Knows the tags of both texts, and measures while it reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[int, int] = {}  # of nodes that are read whole, by id

    def compose_node(self, parent: yaml.Node | None, index: int) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        node: Any = super().compose_node(parent, index)
        if is_alias and id(node) not in self._sizes:
            raise _fault(node, "a part of it is an alias of the whole: write that part out")
        if is_alias:
            return node
        size = VALUE
        if isinstance(node, yaml.ScalarNode):
            size += len(node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(self._sizes[id(part)] for part in node.value)
        elif isinstance(node, yaml.MappingNode):
            size += sum(self._sizes[id(part)] for pair in node.value for part in pair)
            self._check_keys([key for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        if size > EXPANDED:
            most = f"{EXPANDED // VALUE} values or {EXPANDED} characters"
            raise _fault(node, f"with its aliases it has more than {most}: write less")
        self._sizes[id(node)] = size
        return node

    def _check_keys(self, keys: list[yaml.ScalarNode]) -> None:
        seen: set[Any] = set()
        for key in keys:
            names = {key.value, self.construct_object(key)}  # 1 and 0x1 are one key, too
            if names & seen:
                raise _fault(key, f"the key {key.value[:80]!r} is there twice: remove one")
            seen |= names


def _fault(node: yaml.Node, text: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=node.start_mark)


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


for _tag in ("value", "merge"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def read(path: Path) -> Any:
    """Return the document of a file, JSON if its name says so, else YAML; None for an empty one.

    Raises:
        SettingsError: it is not valid, or passes a bound.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(FILE_BYTES + 1)
    try:
        return load(content.decode(), path.name)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path.name} cannot be read: {error}") from None


def load(text: str, name: str) -> Any:
    """Return the document of a file's text; see `read`.

    Raises:
        SettingsError: it is not valid, or passes a bound.
    """
    if len(text) > FILE_BYTES:
        raise SettingsError(f"{name} is longer than {FILE_BYTES} bytes: write less, or in files")
    form = "JSON" if name.endswith(".json") else "YAML"
    try:
        if form == "JSON":
            document = json.loads(text, object_pairs_hook=_mapping)
        else:
            document = yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        where = f"{name}, line {error.problem_mark.line + 1}," if error.problem_mark else name
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise SettingsError(f"{where} is not valid YAML: {problem}") from None
    except RecursionError:
        raise SettingsError(f"{name} is not valid {form}: {DEEP}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"{name} is not valid {form}: {error}") from None
    check(document, name)
    return document


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {key[:80]!r} is there twice: remove one")
        keys.add(key)
    return dict(pairs)


def check(value: Any, name: str, key: str = "", depth: int = 0) -> None:
    """Check the texts in a value and how deep it is; `key` is that of the value in its file.

    Raises:
        SettingsError: one of them passes a bound.
    """
    if depth > DEPTH:
        raise SettingsError(f"{name}: {key} has {DEEP}")
    if isinstance(value, str):
        if len(value) > TEXT:
            bound = f"has {len(value)} characters, and a value at most {TEXT}: shorten it"
            raise SettingsError(f"{name}: {key} {bound}")
        if found := CONTROL.search(value):
            raise SettingsError(f"{name}: {key} has the character {found[0]!r}: remove it")
    parts = value.items() if isinstance(value, dict) else ()
    for step, part in enumerate(value) if isinstance(value, list) else parts:
        check(step, name, f"a key of {key}")
        check(part, name, f"{key}.{step}".lstrip(".")[:120], depth + 1)
