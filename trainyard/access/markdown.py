"""Foreign text in Markdown that GitHub shows: it stays text, whatever it holds.

Names and messages come from clusters, stores and repositories, where others can write: none of them
becomes a heading, a link, an image or HTML, and none mentions people or other issues.
"""

import re

from trainyard.access.terminal import clean, clean_lines

# Within a line only these begin markup; a dot does in "www.".
SPECIAL = re.compile(r"[\\`*_~<>&|]|\](?=[(\[])|:(?=//)|(?<=www)\.", re.IGNORECASE)
REFERENCE = re.compile(r"[@#]|\bGH-", re.IGNORECASE)
# Characters that end a span of code or a cell of a table, or that a span loses at its ends.
ENDS_CODE = re.compile(r"[`|]|^ | $|^$")
NOTHING = "\u200b"  # a zero-width space


def text(foreign: object) -> str:
    """Return foreign text for use within a line, also in a cell of a table."""
    flat = clean(" ".join(str(foreign).split()))
    # GitHub looks for people and issues in the shown text, where an entity is a character again.
    return SPECIAL.sub(_entity, REFERENCE.sub(lambda found: f"{found[0]}{NOTHING}", flat))


def code(foreign: object) -> str:
    """Return foreign text as a span of code, also in a cell of a table."""
    shown = clean(foreign)
    if not ENDS_CODE.search(shown):
        return f"`{shown}`"
    return f"<code>{re.sub('[^a-zA-Z0-9 ]', _entity, shown)}</code>"


def block(foreign: str) -> str:
    """Return lines of foreign text as a block of code."""
    lines = clean_lines(foreign).removesuffix("\n")
    longest = max((len(run) for run in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{lines}\n{fence}\n"


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"
