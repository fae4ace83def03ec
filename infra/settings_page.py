"""Writes the list of docs/configuration.md from the settings in Pulumi.yaml.

    python -m infra.settings_page

replaces the text between two marks of the page and keeps everything else.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainyard.access import terminal

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- Written by `make docs` from Pulumi.yaml. -->\n"
END = "<!-- End of the list. -->\n"
REFERENCE = re.compile(r"\. See docs/([\w-]+\.md)(#[\w-]+)?$")  # the end of a description

Schema = Mapping[str, Mapping[str, Any]]


def listed(schema: Schema) -> str:
    """Return the settings as a Markdown list; a default shows its setting's type."""
    return "".join(_item(key, entry) for key, entry in schema.items())


def updated(page: str, schema: Schema) -> str:
    """Return a page with the list of a schema; raises ValueError where a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no line {(END if begin else BEGIN).strip()}: restore it")
    return before + begin + listed(schema) + end + after


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
        schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
        PAGE.write_text(updated(PAGE.read_text(), schema))
    except ValueError as error:
        sys.exit(terminal.clean_lines(f"error: {PAGE}: {error}"))
