"""Drops useless training pairs: blank or overlong sides, and sides of very different length.

WMT14's archives need this; the paper states no rule (§5.1). Lines are `normalised`. Evaluation sets are not cleaned,
since scores need every line.

Lengths are counted in words, or in characters if either language is written without spaces
(`pipeline.text.languages`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, Shard
from pipeline.store.scratch import Scratch
from pipeline.text.aligned import CorpusWriter, write_shards
from pipeline.text.languages import has_word_spaces
from pipeline.text.lines import is_utf8, read_pairs
from pipeline.text.normalisation import normalised

REASONS = ("blank", "too_long", "ratio", "invalid")
CHARACTERS_PER_WORD = 5
"""Multiplies `max_words` where lengths are counted in characters."""


def clean(context: Context, corpus: Corpus, settings: CleaningSettings) -> Corpus:
    """Filters the pairs of a corpus, with one call of `context.map` per shard.

    The report is {"read", "kept", "dropped": {reason: pairs}, "normalised": lines changed within,
    "collections": {name: {"read", "kept", "dropped"}}}. Each shard holds pairs of one collection. Raises UserError if
    no pair is kept.
    """
    shards, in_words = corpus.shards, all(map(has_word_spaces, corpus.languages))
    counts_of: dict[str, Counter[str]] = {shard.collection: Counter() for shard in shards}
    writer = CorpusWriter(context, corpus.languages)
    calls = [(shard.collection, (context.scratch, shard, corpus.languages, settings, in_words)) for shard in shards]
    read, done = corpus.pairs, 0
    for shard, counted in zip(shards, writer.add(clean_shard, calls), strict=True):
        counts_of[shard.collection] += counted
        done += shard.pairs
        context.progress(done, read, "pairs")
    total = sum(counts_of.values(), Counter[str]())
    report = _report(total)
    if not report["kept"]:
        dropped = ", ".join(f"{pairs} {reason}" for reason, pairs in report["dropped"].items())
        raise UserError(
            f"cleaning drops all {read:,} training pairs ({dropped}); "
            "check that the two sides are the right files, or raise max_words or max_ratio"
        )
    report["normalised"] = total["normalised"]
    report["collections"] = {name: _report(counted) for name, counted in counts_of.items()}
    return writer.finish(report, corpus.symbols)


def clean_shard(
    part: Corpus, scratch: Scratch, shard: Shard, languages: tuple[str, str], settings: CleaningSettings, in_words: bool
) -> tuple[list[int], Counter[str]]:
    """Filters a shard into shards of `part`; returns their numbers of pairs and the counts."""
    counts, shard = Counter[str](read=shard.pairs), shard

    def kept() -> Iterator[tuple[str, str]]:
        for source, target in read_pairs(shard.source, shard.target, "surrogateescape"):
            pair = normalised(source), normalised(target)
            counts["normalised"] += (pair[0] != source.strip()) + (pair[1] != target.strip())
            if reason := reason_to_drop(*pair, settings, in_words=in_words):
                counts[reason] += 1
            else:
                counts["kept"] += 1
                yield pair

    return write_shards(part, languages, kept(), settings.shard_pairs), counts


def reason_to_drop(source: str, target: str, settings: CleaningSettings, *, in_words: bool = True) -> str | None:
    """Returns the first reason to drop a training pair (one of REASONS; "invalid" if a side is not UTF-8), or None.

    Lengths are counted in words, or without `in_words` in characters other than spaces.
    """
    if not is_utf8(source + target):
        return "invalid"
    words = source.split(), target.split()
    shorter, longer = sorted(len(side) if in_words else sum(map(len, side)) for side in words)
    if not shorter:
        return "blank"
    if longer > settings.max_words * (1 if in_words else CHARACTERS_PER_WORD):
        return "too_long"
    return "ratio" if longer / shorter > settings.max_ratio else None


def _report(counts: Counter[str]) -> dict[str, Any]:
    """Returns the number of pairs read, kept and dropped by reason."""
    return {"read": counts["read"], "kept": counts["kept"], "dropped": {reason: counts[reason] for reason in REASONS}}
