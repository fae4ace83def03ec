"""The table of docs/engine.md, made from the schema modules.

    python -m scripts.resources_page

replaces the text between two marks of the page and keeps everything else.
"""

import json
import re
import sys
from pathlib import Path

from engine.command import schema as command
from engine.docker import schema as docker
from engine.schema import Property, Table
from scripts.marked_text import replace_between
from trainyard.access import terminal

PAGE = Path(__file__).parents[1] / "docs" / "engine.md"
BEGIN = "<!-- Written by `make docs` from the schema modules of engine/. -->\n"
END = "<!-- End of the table. -->\n"
HEADER = "| Resource | Properties | Changed in place |\n| --- | --- | --- |\n"


def table() -> str:
    """Return the supported resources as a Markdown table."""
    rows = [_row(type_, known) for type_, known in (docker.TABLES | command.TABLES).items()]
    return HEADER + "".join(rows)


def update_page(page: str) -> str:
    """Return a page with the table as it is now; raises ValueError where a mark is missing."""
    return replace_between(page, BEGIN, table(), END)


def _row(type_: str, known: Table) -> str:
    name = re.sub(r":(index/\w+:)?", ".", type_)
    in_place = ", ".join(key for key, each in known.items() if not each.replaces)
    return f"| `{name}` | {_names(known)} | {in_place} |\n"


def _names(known: Table) -> str:
    return ", ".join(_name(key, each) for key, each in known.items())


def _name(key: str, known: Property) -> str:
    text = f"**{key}**" if known.required else key
    if known.default is not None:
        text += f" = `{json.dumps(known.default)}`"
    return f"{text} ({_names(known.fields)})" if known.fields else text


if __name__ == "__main__":
    try:
        PAGE.write_text(update_page(PAGE.read_text()))
    except ValueError as error:
        sys.exit(terminal.clean_lines(f"error: {PAGE}: {error}"))
