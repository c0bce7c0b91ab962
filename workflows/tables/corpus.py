"""Reports on prepared text (§5.1): the pairs kept, sentence lengths and padding.

`aiayn prepare` writes the report to OUT/report; Tables 2 to 4 show it and send it to MLflow.
"""

from itertools import zip_longest
from typing import TYPE_CHECKING

from markupsafe import Markup

from pipeline.artifacts import Corpus, EncodedDataset, Vocabulary
from pipeline.context import Context
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.text.cleaning import REASONS as CLEANING_REASONS
from pipeline.text.corpus_statistics import TOO_MANY_TOKENS, CorpusStatistics, measure
from pipeline.text.overlap import Overlaps
from workflows.quantities import percent, rounded
from workflows.tables.plots import COLORS, figure, svg
from workflows.tables.table import NAME, Column, Table, columns, in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IN_WORDS = ("blank side", "too many words", "lengths too different", "not UTF-8", "too many tokens")
REASONS = dict(zip((*CLEANING_REASONS, TOO_MANY_TOKENS), _IN_WORDS, strict=True))
"""Why pairs are dropped, in words."""
SUSPICIONS = {"duplicate": "duplicates", "copy": "copies of the source", "numbers": "other numbers"}
"""Causes for suspicion, in words."""
LONGEST_SHOWN = "0.999"
"""The histogram leaves out lengths above this quantile: they would squeeze the rest."""


class CorpusReport(JsonArtifact[CorpusStatistics]):
    """`corpus_report.json`, and `corpus_report.svg` with a histogram of sentence lengths."""

    record_file = "corpus_report.json"

    @property
    def summary(self) -> str:
        """The main statistics on one line."""
        statistics = self.load()
        total, padding = statistics.total, statistics.plan.padding_fraction
        source, target = statistics.lengths
        return (
            f"{rounded(total.kept)} of {rounded(total.read)} training pairs kept, {source.mean:.1f} source "
            f"and {target.mean:.1f} target tokens per pair, {percent(total.unknown_fraction)} unknown"
            + ("" if padding is None else f", {percent(padding)} padding")
            + "".join(f"; {overlap} in the training text" for overlap in statistics.overlaps if overlap.pairs)
        )

    @property
    def metrics(self) -> dict[str, float]:
        """The main statistics for MLflow."""
        statistics = self.load()
        total, plan, (source, target) = statistics.total, statistics.plan, statistics.lengths
        values = {
            "pairs_read": total.read,
            "pairs_kept": total.kept,
            **{f"pairs_dropped.{reason}": pairs for reason, pairs in total.dropped.items()},
            "source_tokens_a_pair": source.mean,
            "target_tokens_a_pair": target.mean,
            "unknown_fraction": total.unknown_fraction,
            "padding_fraction": plan.padding_fraction,
            "updates_an_epoch": plan.updates,
        }
        return {name: value for name, value in values.items() if value is not None}


def report_corpus(
    context: Context,
    corpus: Corpus,
    vocabulary: Vocabulary,
    dataset: EncodedDataset,
    overlaps: Overlaps,
    data: str,
    training: TrainingSettings,
) -> CorpusReport:
    """Writes the statistics of a language pair's text and of the first epoch of a run on it.

    `data` is a short description of the text. Raises UserError if a file is missing or damaged.
    """
    statistics = measure(data, corpus, vocabulary, dataset, overlaps, training)
    report = CorpusReport(context.folder).write(statistics)
    (context.folder / "corpus_report.svg").write_text(lengths_svg(statistics), encoding="utf-8")
    return report


def title(statistics: CorpusStatistics) -> str:
    """Returns the language pair and the data, e.g. `EN-DE, WMT 2014`."""
    return f"{statistics.pair.upper()}, {statistics.data}"


def collections(statistics: CorpusStatistics) -> Table:
    """Returns a table of the pairs read, kept and dropped per collection, and of all if there are several."""
    found = {**REASONS, **SUSPICIONS}
    shown = [
        Column(NAME, "training pairs"),
        *columns("read", "kept", spec=","),
        *(Column(reason, words, spec=",") for reason, words in found.items()),
        Column("unknown_fraction", "unknown tokens", unit="%"),
    ]
    rows = [
        in_order(
            shown, of.name, of.read, of.kept, *map({**of.dropped, **of.suspicious}.get, found), of.unknown_fraction
        )
        for of in [*statistics.collections, *[statistics.total] * (len(statistics.collections) > 1)]
    ]
    return Table(title(statistics), shown, rows)


def facts(statistics: CorpusStatistics) -> dict[str, str]:
    """Returns the facts listed below the collections, by name."""
    plan, sample, sides = statistics.plan, statistics.sample, statistics.lengths
    means = ", ".join(f"{side.language} {side.mean:.3g}" for side in sides)
    longest = ", ".join(f"{side.language} {side.quantiles['0.99']:.3g}" for side in sides)
    of_text = {
        "tokens per sentence": f"mean: {means}; 99th percentile: {longest}",
        "unknown tokens": ", ".join(f"{split} {percent(part)}" for split, part in statistics.unknown.items()),
        "normalised": f"{rounded(n := statistics.normalised)} training line{'s' * (n != 1)}",
        "vocabulary": f"{rounded(sample['size'])} pieces, learned from the {rounded(sample['words'])} most frequent "
        f"words of {rounded(sample['sampled_pairs'])} of {rounded(sample['train_pairs'])} pairs",
        "also in the training text": "; ".join(map(str, statistics.overlaps)),
    }
    if plan.updates is None or plan.padding_fraction is None:
        return {**of_text, "padding": plan.problem}
    return {
        **of_text,
        "padding": f"{percent(plan.padding_fraction)} of the tokens computed on CPUs",
        "one epoch": f"{rounded(plan.updates)} updates of {rounded(plan.budget_tokens)} tokens on the fuller side",
    }


def lengths_svg(statistics: CorpusStatistics) -> str:
    """Plots a histogram of the lengths on both sides."""

    def draw(axes: "Axes") -> None:
        for side, color in zip(statistics.lengths, COLORS, strict=False):
            edges = [length - 0.5 for length in range(len(side.sentences) + 1)]
            label = f"{side.language}, mean {side.mean:.1f}"
            axes.stairs(side.sentences, edges, color=color, linewidth=1.4, label=label)
        axes.set_xlim(0, max(side.quantiles[LONGEST_SHOWN] for side in statistics.lengths) + 1)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda sentences, _: rounded(sentences))
        axes.set_ylabel("training sentences")

    return svg(f"{title(statistics)}: lengths", "tokens", draw)


def lengths_figure(statistics: CorpusStatistics) -> Markup:
    """Returns the same plot as a figure with its data."""
    languages = [side.language for side in statistics.lengths]
    counts = zip_longest(*(side.sentences for side in statistics.lengths), fillvalue=0)
    rows = [(length, *sentences) for length, sentences in enumerate(counts) if any(sentences)]
    described = f"{title(statistics)}: lengths of the training sentences in tokens"
    return figure(lengths_svg(statistics), described, f"lengths-{statistics.pair}", ("tokens", *languages), rows)
