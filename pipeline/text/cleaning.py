"""Writes training text as shards, without useless pairs: blank or overlong sides, sides of very different length.

    write_corpus(context, ("en", "de"), parts_of("train.en", source, target, 100_000), CleaningSettings())

WMT14's archives need this; the paper states no rule (§5.1). Lines are `normalised`. Evaluation sets are not cleaned,
since scores need every line.

Lengths are counted in words, or in characters if either language is written without spaces
(`pipeline.text.languages`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline.artifacts import Corpus
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parts import written
from pipeline.records import CorpusRecord
from pipeline.settings import CleaningSettings
from pipeline.text.aligned import Part, normalised_pairs
from pipeline.text.languages import has_word_spaces
from pipeline.text.lines import INVALID, TOO_LONG, write_pairs

REASONS = ("blank", TOO_LONG, "ratio", INVALID)
CHARACTERS_PER_WORD = 5
"""Multiplies `max_words` where lengths are counted in characters."""


def write_corpus(
    context: Context,
    languages: tuple[str, str],
    parts: Iterable[Part],
    settings: CleaningSettings,
    *,
    expected: int | None = None,
    symbols: Iterable[str] | None = None,
    report: Mapping[str, Any] = MappingProxyType({}),
) -> Corpus:
    """Cleans the pairs of each part and writes them as a shard, with one task per part (`pipeline.parts`).

    `expected` is the number of pairs, if known, for progress. Linearised trees have `symbols`, to which those of the
    text are added. The corpus's report is `report`, which is read at the end, and {"read", "kept", "dropped": {reason:
    pairs}, "normalised": lines changed within, "collections": {name: {"read", "kept", "dropped"}}}. Raises UserError if
    no pair is kept.
    """
    corpus, in_words = Corpus(context.folder), all(map(has_word_spaces, languages))

    def calls() -> Iterator[tuple[list[str], tuple[Any, ...]]]:
        for number, part in enumerate(parts):
            names = [corpus.shard_path(number, language).name for language in languages]
            yield names, (part, settings, in_words, symbols is not None)

    shards, collections, known = list[int](), list[str](), set(symbols or ())
    counts_of: dict[str, Counter[str]] = {}
    total = Counter[str]()
    for done in written(context, write_shard, calls()):
        counts = Counter(done["counts"])
        shards.append(counts["kept"])
        collections.append(done["collection"])
        counts_of.setdefault(done["collection"], Counter()).update(counts)
        known.update(done["symbols"])
        total += counts
        context.progress(total["read"], max(expected or 0, total["read"]), "pairs")
    all_counts = _report(total)
    if not total["kept"]:
        dropped = ", ".join(f"{pairs} {reason}" for reason, pairs in all_counts["dropped"].items())
        raise UserError(
            f"cleaning drops all {total['read']:,} training pairs ({dropped}); "
            "check that the two sides are the right files, or raise max_words or max_ratio"
        )
    of_collections = {name: _report(counts) for name, counts in counts_of.items()}
    return corpus.write(
        CorpusRecord(
            source=languages[0],
            target=languages[1],
            shards=tuple(shards),
            collections=tuple(collections),
            symbols=tuple(sorted(known)),
            report={**report, **all_counts, "normalised": total["normalised"], "collections": of_collections},
        )
    )


def write_shard(
    paths: Sequence[Path], part: Part, settings: CleaningSettings, in_words: bool, of_trees: bool
) -> dict[str, Any]:
    """Writes the cleaned pairs of a part to a source and a target file; returns its collection, counts and symbols."""
    raw, symbols = list(part.pairs()), set[str]()
    counts = Counter({**part.dropped, "read": len(raw) + sum(part.dropped.values())})

    def kept() -> Iterator[tuple[str, str]]:
        for (raw_source, raw_target), (source, target) in zip(raw, normalised_pairs(raw), strict=True):
            counts["normalised"] += (source != raw_source.strip()) + (target != raw_target.strip())
            if of_trees:
                symbols.update(target.split(" "))
            if reason := reason_to_drop(source, target, settings, in_words=in_words):
                counts[reason] += 1
            else:
                yield source, target

    counts["kept"] = write_pairs(paths[0], paths[1], kept())
    return {"collection": part.collection, "counts": counts, "symbols": sorted(symbols - {""})}


def reason_to_drop(source: str, target: str, settings: CleaningSettings, *, in_words: bool = True) -> str | None:
    """Returns the first reason to drop a training pair (one of REASONS), or None.

    Lengths are counted in words, or without `in_words` in characters other than spaces.
    """
    words = source.split(), target.split()
    shorter, longer = sorted(len(side) if in_words else sum(map(len, side)) for side in words)
    if not shorter:
        return "blank"
    if longer > settings.max_words * (1 if in_words else CHARACTERS_PER_WORD):
        return TOO_LONG
    return "ratio" if longer / shorter > settings.max_ratio else None


def _report(counts: Counter[str]) -> dict[str, Any]:
    """Returns the number of pairs read, kept and dropped by reason."""
    return {"read": counts["read"], "kept": counts["kept"], "dropped": {reason: counts[reason] for reason in REASONS}}
