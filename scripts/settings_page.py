"""Writes the settings of Pulumi.yaml and the list of docs/configuration.md from the models.

    python -m scripts.settings_page

replaces the text after a mark of Pulumi.yaml, and between two marks of the page, and keeps
everything else.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic.fields import FieldInfo

from cluster import model
from infra.settings import config
from scripts.marked_text import replace_between
from trainyard.access import terminal

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "Pulumi.yaml"
MARK = "# Written by `make docs` from the models of infra.\n"
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- Written by `make docs` from the models of infra. -->\n"
END = "<!-- End of the list. -->\n"
REFERENCE = re.compile(r"\. See docs/([\w-]+\.md)(#[\w-]+)?$")  # the end of a description

Schema = Mapping[str, Mapping[str, Any]]


def settings_list(schema: Schema) -> str:
    """Return the settings as a Markdown list; a default shows its setting's type."""
    return "".join(_item(key, entry) for key, entry in schema.items())


def schema() -> Schema:
    """Return the settings as Pulumi.yaml has them, by key."""
    return {key: _entry(declared) for key, declared in config.TREE.declared().items()}


def _entry(declared: FieldInfo) -> dict[str, Any]:
    kind, default = model.json_type(declared.annotation), declared.default
    entry: dict[str, Any] = {"type": kind}
    if kind == "array":
        entry["items"] = {"type": model.json_type(get_args(declared.annotation)[0])}
        default = []
    elif kind == "object":
        default = {}
    return entry | {"default": default, "description": declared.description}


def project(text: str, schema: Schema) -> str:
    """Return the text of Pulumi.yaml with a schema; raises ValueError where the mark is missing."""
    settings = yaml.safe_dump({"config": dict(schema)}, sort_keys=False, width=100)
    return replace_between(text, MARK, settings, "")


def update_page(page: str, schema: Schema) -> str:
    """Return a page with the list of a schema; raises ValueError where a mark is missing."""
    return replace_between(page, BEGIN, settings_list(schema), END)


def _item(key: str, entry: Mapping[str, Any]) -> str:
    text, default = entry["description"], entry["default"]
    shown = default if isinstance(default, str) and default else json.dumps(default)
    found = REFERENCE.search(text)
    name = f"[`{key}`]({_target(found)})" if found else f"`{key}`"
    return f"- {name} (`{shown}`): {REFERENCE.sub('', text)}\n"


def _target(found: re.Match[str]) -> str:
    page, anchor = found[1], found[2] or ""
    return anchor if page == PAGE.name else f"{page}{anchor}"


if __name__ == "__main__":
    try:
        PROJECT.write_text(project(PROJECT.read_text(), schema()))
        PAGE.write_text(update_page(PAGE.read_text(), schema()))
    except ValueError as error:
        sys.exit(terminal.clean_lines(f"error: {error}"))
