"""Draws the plots of a corpus report: how long its sentences are, and how much of it was dropped."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.quantities import rounded
from workflows.reports.corpus_text import REASONS, kept, rows, title
from workflows.reports.svg import COLORS, Plot, figure, image

LONGEST_SHOWN = "0.999"
"""The quantile of the lengths up to which they are drawn; the few longer ones would squeeze the others."""
SIDES = COLORS[:2]
REASON_COLORS = dict(zip(REASONS, COLORS[2:], strict=False))
HEIGHT_IN, BAR_IN, MARGINS_IN = 2.9, 0.42, 1.2
"""The least height of a drawing, the height of each collection in it, and that of what is above and below them."""
LABEL_PT = 8.5


def plots(statistics: CorpusStatistics) -> list[Plot]:
    """Draws the lengths and, if any pairs were dropped, those pairs."""
    dropped = [_dropped(statistics)] if any(statistics.total.dropped.values()) else []
    return [_lengths(statistics), *dropped]


def figures(statistics: CorpusStatistics) -> list[Markup]:
    """Returns the same drawings as figures with their data."""
    pair = statistics.pair
    sides = statistics.lengths
    longest = max(len(side.sentences) for side in sides)
    lengths = [(n, *(side.sentences[n] if n < len(side.sentences) else 0 for side in sides)) for n in range(longest)]
    while len(lengths) > 1 and not any(lengths[-1][1:]):
        lengths.pop()
    counts = [(one.name, one.read, one.kept, *(one.dropped[reason] for reason in REASONS)) for one in rows(statistics)]
    data: list[tuple[str, Sequence[str], Sequence[Sequence[object]]]] = [
        (f"lengths-{pair}", ("tokens", *(side.language for side in sides)), lengths),
        (f"dropped-{pair}", ("collection", "read", "kept", *REASONS.values()), counts),
    ]
    return [figure(image(plot), *of_plot) for plot, of_plot in zip(plots(statistics), data, strict=False)]


def _lengths(statistics: CorpusStatistics) -> Plot:
    def draw(axes: Axes) -> None:
        for side, color in zip(statistics.lengths, SIDES, strict=True):
            edges = [length - 0.5 for length in range(len(side.sentences) + 1)]
            label = f"{side.language}, mean {side.mean:.1f}"
            axes.stairs(side.sentences, edges, color=color, linewidth=1.4, label=label)
            axes.stairs(side.sentences, edges, color=color, linewidth=0, alpha=0.15, fill=True)
        axes.set_xlim(0, max(side.quantiles[LONGEST_SHOWN] for side in statistics.lengths) + 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda sentences, _: rounded(sentences))
        axes.set_ylabel("training sentences")
        axes.legend(frameon=False)

    return Plot(f"{title(statistics)}: lengths", "tokens", draw, HEIGHT_IN)


def _dropped(statistics: CorpusStatistics) -> Plot:
    """Draws a bar for each collection, divided by reason."""
    collections = statistics.collections

    def draw(axes: Axes) -> None:
        ends = [0.0] * len(collections)
        for reason, label in REASONS.items():
            widths = [100 * one.dropped[reason] / one.read for one in collections]
            if any(widths):
                axes.barh(range(len(collections)), widths, 0.3, ends, color=REASON_COLORS[reason], label=label)
            ends = [end + width for end, width in zip(ends, widths, strict=True)]
        for place, one in enumerate(collections):
            axes.text(0, place - 0.22, f" {kept(one)}", fontsize=LABEL_PT, verticalalignment="bottom")
        axes.set_yticks([])
        axes.set_ylim(len(collections) - 0.7, -0.8)
        axes.set_xlim(0, 1.05 * max(ends))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, ncols=2)

    height_in = max(HEIGHT_IN, MARGINS_IN + BAR_IN * len(collections))
    return Plot(f"{title(statistics)}: dropped", "% of the training pairs read", draw, height_in)
