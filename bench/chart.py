"""The results as a picture: a bar for each row, as long as its ratio beside its goal.

A bar that ends at the line meets its goal, and one that passes it misses it, whichever way the goal
bounds the ratio. A row without a goal has its ratio to the plain way, in grey.
"""

from collections.abc import Sequence
from html import escape

from bench.measure import Ratio
from bench.table import goal

WIDTH = 380  # of a telephone: text is readable there and beside a page's other text
LEFT, TOP, ROW = 12, 64, 30
LIMIT = 200  # x of a ratio that just meets its goal; bars of twice as much are cut
STYLE = """
    .page { fill: #ffffff } text { fill: #1a2233 } .note { fill: #4a5568; font-size: 11px }
    .met { fill: #2f7d46 } .missed { fill: #b3421b } .none { fill: #8792a2 }
    .limit { stroke: #1a2233; stroke-dasharray: 3 3 } .figure { text-anchor: end }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #a9b4c2 }
      .met { fill: #4cb56b } .missed { fill: #ee7b4f } .none { fill: #6d7888 }
      .limit { stroke: #e6edf3 }
    }
"""


def svg(ratios: Sequence[Ratio]) -> str:
    """Return the picture of all rows, in their order."""
    height = TOP + ROW * len(ratios) + 8
    met = sum(ratio.verdict == "met" for ratio in ratios)
    missed = sum(ratio.verdict == "missed" for ratio in ratios)
    title = f"Ratios beside their goals: {met} met, {missed} missed"
    rows = "\n".join(_row(index, ratio) for index, ratio in enumerate(ratios))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"
     viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12"
     role="img" aria-labelledby="title">
  <!-- Written by bench. -->
  <title id="title">{title}</title>
  <style>{STYLE}  </style>
  <rect class="page" width="{WIDTH}" height="{height}"/>
  <text x="{LEFT}" y="20" font-weight="bold">{title}</text>
  <text class="note" x="{LEFT}" y="38">A bar that passes the line misses its goal.</text>
  <text class="note" x="{LEFT}" y="52">Grey: no goal, and the line is the plain way.</text>
{rows}
  <path class="limit" d="M{LIMIT} {TOP} V{height - 4}"/>
</svg>
"""


def of_limit(ratio: Ratio) -> float:
    """Return how long the bar is: 1 at the limit, more beyond it."""
    bound = 1.0 if ratio.goal is None else ratio.goal
    return ratio.value / bound if ratio.at_most else bound / ratio.value


def _row(index: int, ratio: Ratio) -> str:
    top = TOP + ROW * index
    kind = "none" if ratio.goal is None else ratio.verdict
    width = min((LIMIT - LEFT) * of_limit(ratio), WIDTH - 2 * LEFT)
    shown = f"{ratio.value:.3g}" if ratio.value < 100 else f"{ratio.value:.0f}"
    bound = goal(ratio) and f" ({goal(ratio)})".replace("<=", "≤").replace(">=", "≥")
    return f"""\
  <text x="{LEFT}" y="{top + 14}">{escape(ratio.name)}</text>
  <text class="figure" x="{WIDTH - LEFT}" y="{top + 14}">{shown}{bound}</text>
  <rect class="{kind}" x="{LEFT}" y="{top + 19}" width="{width:.1f}" height="6"/>"""
