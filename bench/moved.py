"""The ratios of each landing in one file, and which of them moved by more than their own noise."""

import json
from collections.abc import Iterable
from pathlib import Path

from bench.measure import Ratio

KEPT = 10  # landings
FEWEST = 3  # earlier ratios of a row that make a noise


def note(file: Path, commit: str, ratios: Iterable[Ratio]) -> list[str]:
    """Add a commit's ratios to the file; return a line for each that moved.

    The noise of a row is the range of its earlier ratios; it moved if it is outside by more than
    half of that.
    """
    kept = json.loads(file.read_text()) if file.exists() else {}
    lines = []
    for ratio in ratios:
        row = kept.setdefault(ratio.name, {})
        row.pop(commit, None)
        earlier = list(row.values())
        if len(earlier) >= FEWEST:
            low, high = min(earlier), max(earlier)
            beyond = max(low - ratio.value, ratio.value - high)
            if beyond > (high - low) / 2:
                lines.append(
                    f"moved: {ratio.name} is {ratio.value:.3f}, "
                    f"and was {low:.3f} to {high:.3f} in {len(earlier)} landings"
                )
        row[commit] = round(ratio.value, 4)
        for old in list(row)[:-KEPT]:
            del row[old]
    file.write_text(json.dumps(kept, indent=1) + "\n")
    return lines
