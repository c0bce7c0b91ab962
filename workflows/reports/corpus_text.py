"""What is told of prepared text (§5.1) in words: for the terminal, the reports and MLflow."""

from collections.abc import Callable, Mapping

from pipeline.text.cleaning import REASONS as CLEANING_REASONS
from pipeline.text.corpus_statistics import TOO_MANY_TOKENS, Collection, CorpusStatistics, Lengths
from workflows.console.quantities import percent, rounded

REASONS = dict(
    zip(
        (*CLEANING_REASONS, TOO_MANY_TOKENS),
        ("blank side", "too many words", "unlike lengths", "too many tokens"),
        strict=True,
    )
)
"""Why pairs are dropped."""
NAME_CHARACTERS = 40


def title(statistics: CorpusStatistics) -> str:
    """Language pair and data, e.g. `EN-DE, WMT 2014`."""
    return f"{statistics.pair.upper()}, {statistics.data}"


def summary(statistics: CorpusStatistics) -> str:
    """The main figures on one line."""
    total, train, plan = statistics.total, statistics.train, statistics.plan
    padding = "" if plan.padding_fraction is None else f", {percent(plan.padding_fraction)} padding"
    return (
        f"{rounded(total.kept)} of {rounded(total.read)} training pairs kept, {train.source_tokens_a_pair:.1f} and "
        f"{train.target_tokens_a_pair:.1f} tokens a pair, {percent(train.unknown_fraction)} unknown{padding}"
    )


def kept(collection: Collection) -> str:
    """E.g. `europarl-v7: 99.2 % of 1.92 M kept`; of a long name the end."""
    name = collection.name
    shown = name if len(name) <= NAME_CHARACTERS else "…" + name[1 - NAME_CHARACTERS :]
    return f"{shown}: {percent(collection.kept / collection.read)} of {rounded(collection.read)} kept"


def rows(statistics: CorpusStatistics) -> list[Collection]:
    """The collections and, where there are several, all together."""
    return [*statistics.collections, *([statistics.total] if len(statistics.collections) > 1 else [])]


def facts(statistics: CorpusStatistics) -> dict[str, str]:
    """What is told beside the collections."""
    plan, sample = statistics.plan, statistics.sample

    def of_sides(figure: Callable[[Lengths], float]) -> str:
        return ", ".join(f"{side.language} {figure(side):.3g}" for side in statistics.lengths)

    told = {
        "tokens a sentence": f"mean: {of_sides(lambda side: side.mean)}; "
        f"99 % have at most: {of_sides(lambda side: side.quantiles['0.99'])}",
        "unknown tokens": percent(statistics.train.unknown_fraction),
        "vocabulary": f"{rounded(sample.size)} pieces, learned on {rounded(sample.sampled_pairs)} of "
        f"{rounded(sample.train_pairs)} pairs, {rounded(sample.words)} different words",
    }
    if plan.updates is None or plan.padding_fraction is None:
        return {**told, "padding": plan.problem}
    estimated = f", estimated from every {plan.every}th pair" if plan.every > 1 else ""
    return {
        **told,
        "padding": f"{percent(plan.padding_fraction)} of the tokens computed{estimated}",
        "an epoch": f"{rounded(plan.updates)} updates of up to {rounded(plan.budget_tokens)} tokens a side"
        + (f", in {plan.micro_batches} micro-batches each" if plan.micro_batches > 1 else ""),
    }


def metrics(statistics: CorpusStatistics) -> dict[str, float]:
    """The main figures for MLflow; names end in the language pair."""
    total, train, plan = statistics.total, statistics.train, statistics.plan
    found: Mapping[str, float | None] = {
        "pairs_read": total.read,
        "pairs_kept": total.kept,
        **{f"pairs_dropped.{reason}": pairs for reason, pairs in total.dropped.items()},
        "source_tokens_a_pair": train.source_tokens_a_pair,
        "target_tokens_a_pair": train.target_tokens_a_pair,
        "unknown_fraction": train.unknown_fraction,
        "padding_fraction": plan.padding_fraction,
        "updates_an_epoch": plan.updates,
    }
    return {f"{name}.{statistics.pair}": value for name, value in found.items() if value is not None}
