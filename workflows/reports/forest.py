"""Plots the effects of judged claims with their intervals, one forest plot per family and unit.

A claim expects its effect right of the line; the region in which it holds is shaded.
"""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.markers import CARETLEFTBASE, CARETRIGHTBASE
from matplotlib.ticker import MaxNLocator

from workflows.claims.claim import Effect, Judged
from workflows.reports.plots import COLORS, INK, figure, svg

EFFECTS = (
    "Effects with 95% confidence intervals. A claim holds where the blue arrow points, or in the blue band. Colours "
    "show its verdict, corrected for the other claims of its family. A diamond is the paper’s effect."
)
VERDICT_COLORS = {"holds": COLORS[2], "fails": COLORS[4], "undecided": INK}
ROW_IN = 0.3
"""The height of a row."""
RATIO = "×"
UNITS = {"nats": "nats per target token", RATIO: "ratio of times", "accuracy": "share of target tokens"}


def forests(claims: Sequence[Judged]) -> list[Markup]:
    """Returns one plot per family and unit, in the order of first occurrence."""
    drawn: dict[tuple[str, str], list[tuple[Judged, Effect]]] = {}
    for claim in claims:
        for effect in claim.effects:
            drawn.setdefault((claim.family, effect.unit), []).append((claim, effect))
    return [_forest(family, unit, rows) for (family, unit), rows in drawn.items()]


def _forest(family: str, unit: str, rows: Sequence[tuple[Judged, Effect]]) -> Markup:
    neutral = 1.0 if unit == RATIO else 0.0

    def draw(axes: Axes) -> None:
        for place, (claim, effect) in enumerate(rows):
            _row(axes, place, claim, effect)
        axes.axvline(neutral, color=INK, linewidth=0.8, alpha=0.6)
        axes.set_yticks(range(len(rows)), [f"{effect.text} (n = {effect.n})" for _, effect in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        if unit == RATIO:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        if any(effect.printed is not None for _, effect in rows):
            axes.plot([], [], "D", color=INK, markerfacecolor="none", markersize=5, label="the paper")
            axes.legend(frameon=False, fontsize=8, loc="best")

    title = f"{family}: effects, 95% intervals"
    columns = ("section", "claim", "effect", "unit", "value", "low", "high", "n", "paper", "verdict")
    data = [
        (claim.section, claim.text, e.text, e.unit, e.value, e.low, e.high, e.n, e.printed, claim.verdict)
        for claim, e in rows
    ]
    described = "; ".join(f"{effect.text}: {effect.value:+.3g} {unit}, {claim.verdict}" for claim, effect in rows)
    drawing = svg(title, UNITS.get(unit, unit), draw, (7.2, 1.0 + ROW_IN * len(rows)))
    name = f"effects-{family}-{'ratio' if unit == RATIO else unit}".lower().replace(" ", "-")
    return figure(drawing, f"{title}. {described}", name, columns, data)


def _row(axes: Axes, place: int, claim: Judged, effect: Effect) -> None:
    """Draws the region in which the claim holds, the effect with its interval, and the paper's effect."""
    color = VERDICT_COLORS.get(claim.verdict, INK)
    if effect.above is not None and effect.below is not None:
        axes.fill_betweenx([place - 0.4, place + 0.4], effect.above, effect.below, color=COLORS[0], alpha=0.12, lw=0)
    else:
        for limit, arrow in ((effect.above, CARETRIGHTBASE), (effect.below, CARETLEFTBASE)):
            if limit is not None:
                axes.plot([limit, limit], [place - 0.4, place + 0.4], color=COLORS[0], linewidth=1.2)
                axes.plot([limit], [place - 0.3], marker=arrow, color=COLORS[0], markersize=4)
    if effect.low is not None and effect.high is not None:
        axes.plot([effect.low, effect.high], [place, place], color=color, linewidth=1.6, solid_capstyle="butt")
    axes.plot([effect.value], [place], "o", color=color, markersize=5)
    if effect.printed is not None:
        axes.plot([effect.printed], [place], "D", color=INK, markerfacecolor="none", markersize=5)
