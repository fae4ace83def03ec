"""Which items tests name: `python -m tests.items [ITEM…]`.

An item (A1 to F46) is named in a comment at the test that proves it: `# F15`, `# A12 to A14`, also
at the end of a line. Prints each item with the tests that name it; with arguments only those items.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ITEM = r"[A-F][1-9]\d?"
RANGE = re.compile(rf"\b({ITEM})\b(?:\s*(?:to|-)\s*({ITEM})\b)?")


def items(comment: str) -> list[str]:
    """The items that a comment names."""
    found = []
    for first, last in RANGE.findall(comment):
        letter, number = first[0], int(first[1:])
        until = int(last[1:]) if last[:1] == letter else number
        found += [f"{letter}{each}" for each in range(number, until + 1)]
    return found


def named(source: str) -> list[tuple[str, str]]:
    """Pairs of an item and the function that names it, "" for a module's own comments.

    A comment in front of a function, or of its decorators, belongs to it.
    """
    places = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            places.append((first, node.end_lineno or first, node.name))
    lines = source.splitlines()
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        at = token.start[0]
        if lines[at - 1].lstrip().startswith("#"):  # of what follows it
            while at < len(lines) and lines[at - 1].lstrip().startswith("#"):
                at += 1
        inside = [place for place in places if place[0] <= at <= place[1]]
        name = max(inside)[2] if inside else ""
        found += [(item, name) for item in items(token.string)]
    return found


def by_item(folder: Path) -> dict[str, list[str]]:
    """Items to the tests of a folder that name them, in order."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for item, name in named(path.read_text()):
            place = "::".join(filter(None, [str(path.relative_to(folder)), name]))
            tests = found.setdefault(item, [])
            if place not in tests:
                tests.append(place)
    return dict(sorted(found.items(), key=lambda each: (each[0][0], int(each[0][1:]))))


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    for item, tests in by_item(Path(__file__).parent).items():
        if not wanted or item in wanted:
            sys.stdout.write(f"{item}\t{' '.join(tests)}\n")
