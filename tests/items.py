"""Which items tests name: `python -m tests.items [ITEM…]`.

An item (A1 to F82, in docs/promises.md) is named in a comment at the test that proves it: `# F15`,
`# A12 to A14`, also at the end of a line. Prints each item with the tests that name it; with
arguments only those items. With `--write` it writes the column of tests in docs/promises.md.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "promises.md"
ITEM = r"[A-F][1-9]\d?"
RANGE = re.compile(rf"\b({ITEM})\b(?:\s*(?:to|-)\s*({ITEM})\b)?")
ROW = re.compile(rf"^\| ({ITEM}) \| ([^|\n]+) \|.*$", re.MULTILINE)


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


def updated(page: str, found: Mapping[str, list[str]]) -> str:
    """The page of promises with the tests of each item.

    Raises:
        ValueError: it has an item twice, or not at all though a test names it.
    """
    rows = Counter(item for item, _ in ROW.findall(page))
    if twice := [item for item, count in rows.items() if count > 1]:
        raise ValueError(f"{', '.join(twice)}: twice in the page, remove one row of each")
    if unknown := [item for item in found if item not in rows]:
        raise ValueError(
            f"{', '.join(unknown)}: named by tests ({found[unknown[0]][0]}), but not in the page: "
            "write a row, or correct the comment"
        )
    return ROW.sub(lambda row: f"| {row[1]} | {row[2]} | {_column(found.get(row[1], []))} |", page)


def _column(places: list[str]) -> str:
    """How many places name an item, and the file with most of them; a test before a fixture."""
    if not places:
        return "none"
    files = Counter(place.partition("::")[0] for place in places)
    most = max(files, key=lambda file: (Path(file).name.startswith("test_"), files[file]))
    return f"{len(places)}: [{Path(most).name}](../tests/{most})"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        try:
            PAGE.write_text(updated(PAGE.read_text(), by_item(TESTS)))
        except ValueError as error:
            sys.exit(f"error: {PAGE}: {error}")
        sys.exit()
    wanted = set(sys.argv[1:])
    for item, tests in by_item(TESTS).items():
        if not wanted or item in wanted:
            sys.stdout.write(f"{item}\t{' '.join(tests)}\n")
