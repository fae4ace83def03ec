"""Reads settings files: YAML as PyYAML reads it, except for two texts that the CLI does not quote.

`pulumi config set` writes `=` and `<<` as they are. To YAML 1.1 they are keys of mappings, and
PyYAML refuses the whole file that has one as a value.
"""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Knows the tags of both texts."""


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


for _tag in ("value", "merge"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def load(text: str) -> Any:
    """Return the document of a settings file, None for an empty one.

    Raises:
        yaml.YAMLError: it is not valid YAML.
        ValueError: a date or a number is not valid.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - a safe one
