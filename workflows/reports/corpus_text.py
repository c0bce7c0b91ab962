"""Describes prepared text (§5.1) in words, for the terminal, the reports and MLflow."""

from collections.abc import Callable, Mapping

from pipeline.text.cleaning import REASONS as CLEANING_REASONS
from pipeline.text.corpus_statistics import TOO_MANY_TOKENS, Collection, CorpusStatistics, Lengths
from workflows.quantities import percent, rounded
from workflows.tables.table import NAME, Column, Table, columns, in_order

REASONS = dict(
    zip(
        (*CLEANING_REASONS, TOO_MANY_TOKENS),
        ("blank side", "too many words", "lengths too different", "not UTF-8", "too many tokens"),
        strict=True,
    )
)
"""Why pairs are dropped, in words."""


def title(statistics: CorpusStatistics) -> str:
    """Returns the language pair and the data, e.g. `EN-DE, WMT 2014`."""
    return f"{statistics.pair.upper()}, {statistics.data}"


def summary(statistics: CorpusStatistics) -> str:
    """Returns the main statistics on one line."""
    total, plan, (source, target) = statistics.total, statistics.plan, statistics.lengths
    padding = "" if plan.padding_fraction is None else f", {percent(plan.padding_fraction)} padding"
    return (
        f"{rounded(total.kept)} of {rounded(total.read)} training pairs kept, {source.mean:.1f} source "
        f"and {target.mean:.1f} target tokens per pair, {percent(total.unknown_fraction)} unknown"
        f"{padding}"
    )


def rows(statistics: CorpusStatistics) -> list[Collection]:
    """Returns the collections and, if there are several, their total."""
    return [*statistics.collections, *([statistics.total] if len(statistics.collections) > 1 else [])]


def collections(statistics: CorpusStatistics) -> Table:
    """Returns a table of the pairs read, kept and dropped per collection."""
    shown = [
        Column(NAME, "training pairs"),
        *columns("read", "kept", spec=","),
        *(Column(reason, words, spec=",") for reason, words in REASONS.items()),
        Column("unknown_fraction", "unknown tokens", unit="%"),
    ]
    of_rows = [
        in_order(shown, of.name, of.read, of.kept, *(of.dropped[reason] for reason in REASONS), of.unknown_fraction)
        for of in rows(statistics)
    ]
    return Table(title(statistics), shown, of_rows)


def facts(statistics: CorpusStatistics) -> dict[str, str]:
    """Returns the facts listed below the collections, by name."""
    plan, sample = statistics.plan, statistics.sample

    def of_sides(figure: Callable[[Lengths], float]) -> str:
        return ", ".join(f"{side.language} {figure(side):.3g}" for side in statistics.lengths)

    of_text = {
        "tokens per sentence": f"mean: {of_sides(lambda side: side.mean)}; "
        f"99th percentile: {of_sides(lambda side: side.quantiles['0.99'])}",
        "unknown tokens": ", ".join(f"{split.name} {percent(split.unknown_fraction)}" for split in statistics.splits),
        "vocabulary": f"{rounded(sample['size'])} pieces, learned from {rounded(sample['sampled_pairs'])} of "
        f"{rounded(sample['train_pairs'])} pairs with {rounded(sample['words'])} distinct words",
    }
    if plan.updates is None or plan.padding_fraction is None:
        return {**of_text, "padding": plan.problem}
    estimated = f", estimated from one pair in {plan.every}" if plan.every > 1 else ""
    return {
        **of_text,
        "padding": f"{percent(plan.padding_fraction)} of the tokens computed{estimated}",
        "one epoch": f"{rounded(plan.updates)} updates of up to {rounded(plan.budget_tokens)} tokens per side"
        + (f", each in {plan.micro_batches} micro-batches" if plan.micro_batches > 1 else ""),
    }


def metrics(statistics: CorpusStatistics, name: str) -> dict[str, float]:
    """Returns the main statistics for MLflow; their names end in the text's `name`."""
    total, plan, (source, target) = statistics.total, statistics.plan, statistics.lengths
    figures: Mapping[str, float | None] = {
        "pairs_read": total.read,
        "pairs_kept": total.kept,
        **{f"pairs_dropped.{reason}": pairs for reason, pairs in total.dropped.items()},
        "source_tokens_a_pair": source.mean,
        "target_tokens_a_pair": target.mean,
        "unknown_fraction": total.unknown_fraction,
        "padding_fraction": plan.padding_fraction,
        "updates_an_epoch": plan.updates,
    }
    return {f"{figure}.{name}": value for figure, value in figures.items() if value is not None}
