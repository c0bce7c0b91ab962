"""Drops training pairs that teach nothing: blank or overlong sides, and sides of very different length (§5.1).

WMT14's archives need this. Dev and test sets keep every line, or references would no longer match; they only lose a
"\\r" before the line end. Training lines are `normalised`. What a corpus of trees has besides its pairs (`Corpus`) is
copied.

Lengths are counted in words. If either side is written without spaces between them, both are counted in characters.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, Shard
from pipeline.text.aligned import move_shards, write_shards
from pipeline.text.lines import is_utf8, normalised, read_pairs
from pipeline.text.word_spaces import sides_with_word_spaces

REASONS = ("blank", "too_long", "ratio", "invalid")
CHARACTERS_PER_WORD = 5
"""Where lengths are counted in characters, `max_words` allows so many times as many."""


def clean(context: Context, corpus: Corpus, settings: CleaningSettings) -> Corpus:
    """Filters the training pairs of a corpus, with one call of `context.map` per shard.

    The report is {"read", "kept", "dropped": {reason: pairs}, "carriage_returns": lines of all splits that ended in
    one, "collections": {name: {"read", "kept", "dropped"}}}. Each shard holds pairs of one collection. Raises UserError
    if no training pair is kept.
    """
    cleaned = Corpus(context.folder)
    languages = corpus.languages
    shards = corpus.shards("train")
    splits: dict[str, list[int]] = {split: [] for split in corpus.splits}
    counts_of: dict[str, Counter[str]] = {shard.collection: Counter() for shard in shards}
    collections: list[str] = []
    in_words = all(sides_with_word_spaces(corpus))
    calls = [
        (shard, Corpus(cleaned.parts / f"{i:05d}"), languages, settings, in_words) for i, shard in enumerate(shards)
    ]
    read, done = sum(shard.pairs for shard in shards), 0
    for (shard, part, *_), (sizes, counted) in zip(calls, context.map(clean_shard, calls), strict=True):
        move_shards(part, cleaned, "train", languages, sizes, splits["train"])
        collections += [shard.collection] * len(sizes)
        counts_of[shard.collection] += counted + Counter(read=shard.pairs, kept=sum(sizes))
        done += shard.pairs
        context.progress(done, read, "pairs")
    shutil.rmtree(cleaned.parts, ignore_errors=True)
    train = _report(sum(counts_of.values(), Counter()))
    if not train["kept"]:
        dropped = ", ".join(f"{pairs} {reason}" for reason, pairs in train["dropped"].items())
        raise UserError(
            f"cleaning drops all {read:,} training pairs ({dropped}); "
            "check that the two sides are the right files, or raise max_words or max_ratio"
        )
    held_out: Counter[str] = Counter()
    for split in corpus.splits:
        if split != "train":
            pairs = _without_carriage_returns(corpus.shards(split), held_out)
            splits[split] = write_shards(cleaned, split, languages, pairs, settings.shard_pairs)
    for path in (corpus.symbols_path, *(corpus.gold_trees(split) for split in corpus.splits)):
        if path.exists():
            shutil.copyfile(path, cleaned.folder / path.name)
    report = {
        **train,
        "carriage_returns": sum(counted["carriage_returns"] for counted in (held_out, *counts_of.values())),
        "collections": {name: _report(counted) for name, counted in counts_of.items()},
    }
    cleaned.describe(languages, splits, report, collections)
    return cleaned


def clean_shard(
    shard: Shard, part: Corpus, languages: tuple[str, str], settings: CleaningSettings, in_words: bool
) -> tuple[list[int], Counter[str]]:
    """Filters a training shard into split `train` of `part`; returns the sizes of the new shards and the counts."""
    shutil.rmtree(part.folder, ignore_errors=True)  # left by an attempt that was killed
    counts: Counter[str] = Counter()

    def kept() -> Iterator[tuple[str, str]]:
        for source, target in _without_carriage_returns([shard], counts):
            pair = normalised(source), normalised(target)
            if reason := reason_to_drop(*pair, settings, in_words=in_words):
                counts[reason] += 1
            else:
                yield pair

    return write_shards(part, "train", languages, kept(), settings.shard_pairs), counts


def reason_to_drop(source: str, target: str, settings: CleaningSettings, *, in_words: bool = True) -> str | None:
    """Returns the first reason to drop a training pair (one of REASONS; "invalid" if a side is not UTF-8), or None.

    Lengths are counted in words or, where spaces do not separate those of both sides, in characters without spaces.
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
    """Returns the numbers of training pairs read, kept and dropped."""
    return {
        "read": counts["read"],
        "kept": counts["kept"],
        "dropped": {reason: counts[reason] for reason in REASONS},
    }


def _without_carriage_returns(shards: list[Shard], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of some shards without Windows line ends, which it counts."""
    for shard in shards:
        for source, target in read_pairs(shard.source, shard.target, "surrogateescape"):
            counts["carriage_returns"] += source.endswith("\r") + target.endswith("\r")
            yield source.removesuffix("\r"), target.removesuffix("\r")
