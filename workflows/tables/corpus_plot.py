"""Plots the sentence lengths of prepared text."""

from itertools import zip_longest

from markupsafe import Markup
from matplotlib.axes import Axes

from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.quantities import rounded
from workflows.tables.corpus import title
from workflows.tables.plots import COLORS, figure, svg

LONGEST_SHOWN = "0.999"
"""Lengths above this quantile are left out: they would squeeze the rest."""


def lengths_svg(statistics: CorpusStatistics) -> str:
    """Plots a histogram of the lengths on both sides."""

    def draw(axes: Axes) -> None:
        for side, color in zip(statistics.lengths, COLORS, strict=False):
            edges = [length - 0.5 for length in range(len(side.sentences) + 1)]
            label = f"{side.language}, mean {side.mean:.1f}"
            axes.stairs(side.sentences, edges, color=color, linewidth=1.4, label=label)
        axes.set_xlim(0, max(side.quantiles[LONGEST_SHOWN] for side in statistics.lengths) + 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda sentences, _: rounded(sentences))
        axes.set_ylabel("training sentences")
        axes.legend(frameon=False)

    return svg(f"{title(statistics)}: lengths", "tokens", draw)


def lengths_figure(statistics: CorpusStatistics) -> Markup:
    """Returns the same plot as a figure with its data."""
    languages = [side.language for side in statistics.lengths]
    counts = zip_longest(*(side.sentences for side in statistics.lengths), fillvalue=0)
    rows = [(length, *sentences) for length, sentences in enumerate(counts) if any(sentences)]
    described = f"{title(statistics)}: lengths of the training sentences in tokens"
    return figure(lengths_svg(statistics), described, f"lengths-{statistics.pair}", ("tokens", *languages), rows)
