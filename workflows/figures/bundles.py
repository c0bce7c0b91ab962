"""Draws attention as lines between two columns of words, like Figures 3 to 5 of the paper, as SVG.

    draw([Panel(attended, "encoder", layer=1, heads=(0, 2), word=5)], "title", folder / "figure4")

Every piece has a row; a bar marks the pieces of one word. A line's opacity is its weight. Squares beside the keys show
each head's weights for one query.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipeline.attention.recording import Kind
from pipeline.attention.translated import Attended, Pieces

HEAD_COLORS = (
    "#2f6fd0", "#d1731c", "#1f9a78", "#cf4257", "#a05ec0", "#8d6a4f", "#d060a8", "#7d8188",
    "#8d8a1f", "#2b9dba", "#5c6bc8", "#e0965a", "#59b36a", "#e07b84", "#b493d6", "#4d8f8f",
)  # fmt: skip
"""One colour per head, repeated after the last. Legible on white and on near-black."""
INK, SOFT = "#1d1f22", "#6a6f76"
ROW_IN, GAP_ROWS, PANEL_IN, LINE = 0.2, 0.35, 4.2, 44
"""Height of a piece; distance between words, in pieces; width of a panel, and in letters of its titles."""
FAINT = 0.01
"""Weights below this are not drawn."""


class Panel(NamedTuple):
    """One pair of columns: queries and keys."""

    attended: Attended
    kind: Kind
    layer: int
    """Counted from 0."""
    heads: tuple[int, ...]
    """Counted from 0."""
    word: int | None
    """The word whose attention is drawn; None for all."""

    @property
    def title(self) -> str:
        """The panel's title, on as many lines as it needs."""
        word = "" if self.word is None else f"“{self.attended.sides(self.kind)[0].word(self.word)}”: "
        heads = f"head{'s' * (len(self.heads) > 1)} {', '.join(str(head + 1) for head in self.heads)}"
        return fill(f"{word}layer {self.layer + 1}, {heads}", LINE)


def draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Writes `path`.svg with the panels side by side; text stays text."""
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": path.name,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.parse_math": False,
        "text.color": INK,
    }
    lines = wrap(title, LINE * len(panels), break_on_hyphens=False)
    rows = max(_rows(side)[-1] + 1 for panel in panels for side in panel.attended.sides(panel.kind))
    with rc_context(style):
        above_in = 0.35 + ROW_IN * (len(lines) + max(panel.title.count("\n") + 1 for panel in panels))
        figure = Figure(figsize=(PANEL_IN * len(panels), height_in := ROW_IN * rows + 0.15 + above_in))
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_panel(axes, panel, rows)
        figure.suptitle("\n".join(lines), x=0.02, ha="left", fontsize=10, fontweight="bold")
        figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=1 - above_in / height_in, wspace=0.04)
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(path.with_suffix(".svg"), facecolor="white", metadata=metadata)


def color_of(head: int) -> str:
    """Returns the colour of a head, counted from 0."""
    return HEAD_COLORS[head % len(HEAD_COLORS)]


def _rows(side: Pieces) -> list[float]:
    """Returns the row of each piece, with a gap between words."""
    word_of = [number for number, (begin, end) in enumerate(side.words) for _ in range(begin, end)]
    return [piece + GAP_ROWS * word for piece, word in enumerate(word_of)]


def _draw_panel(axes: Axes, panel: Panel, rows: float) -> None:
    queries, keys = panel.attended.sides(panel.kind)
    drawn = range(len(queries.texts)) if panel.word is None else range(*queries.words[panel.word])
    weights_HLM = panel.attended.weights[panel.kind][panel.layer]
    query_rows, key_rows = _rows(queries), _rows(keys)
    axes.set_title(panel.title, loc="left", fontsize=9, color=SOFT)
    axes.set_axis_off()
    axes.set_xlim(-1.25, 2.25)
    axes.set_ylim(rows, -0.8)
    _words(axes, queries, query_rows, -0.06, "right", set(drawn))
    square = 0.0 if panel.word is None else min(0.05, 0.4 / len(panel.heads))
    _words(axes, keys, key_rows, 1.06 + square * len(panel.heads), "left", set(range(len(keys.texts))))
    lines, colors = [], []
    for order, head in enumerate(panel.heads):
        shift = 0.3 * (order - (len(panel.heads) - 1) / 2) / max(1, len(panel.heads) - 1)
        for query in drawn:
            for key, weight in enumerate(weights_HLM[head, query].tolist()):
                if weight >= FAINT:
                    lines.append([(0, query_rows[query] + shift), (1, key_rows[key] + shift)])
                    colors.append(to_rgba(color_of(head), min(1.0, weight)))
    axes.add_collection(LineCollection(lines, colors=colors, linewidths=1.6, capstyle="round"))
    for order, head in enumerate(panel.heads if square else ()):  # squares are between lines and words
        for key, weight in enumerate(weights_HLM[head, list(drawn)].mean(axis=0).tolist()):
            if weight >= FAINT:
                place, color = (1.02 + square * order, key_rows[key] - 0.4), to_rgba(color_of(head), min(1.0, weight))
                axes.add_patch(Rectangle(place, square, 0.8, color=color, linewidth=0))


def _words(axes: Axes, side: Pieces, rows: Sequence[float], x: float, align: str, strong: set[int]) -> None:
    for number, (text, row) in enumerate(zip(side.texts, rows, strict=True)):
        color = SOFT if number in side.separators or number not in strong else INK
        axes.text(x, row, text, ha=align, va="center", color=color)
    for begin, end in side.words:
        if end - begin > 1:
            bar = x + (0.03 if align == "right" else -0.02)
            axes.plot([bar, bar], [rows[begin] - 0.35, rows[end - 1] + 0.35], color=SOFT, linewidth=0.8)
