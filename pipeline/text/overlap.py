"""Finds leakage: evaluation sentences that are in the training text, on which scores are too good.

    check_apart({"train": [train_en, train_de], "dev": [dev_en, dev_de], "test": [test_en, test_de]})
    counts = count(Context(folder), corpus, [dev, test]).load().sets

No run depends on the counts, so a new test set retrains nothing.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.artifacts import Corpus, EvaluationSet, Shard
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.store.artifact import JsonArtifact
from pipeline.text.aligned import cached_sha256
from pipeline.text.lines import read_pairs, write_lines

log = logging.getLogger(__name__)

WARN_FRACTION = 0.01
"""Share of an evaluation set from which overlap is warned of; less is usual, by short sentences."""


@dataclass(frozen=True)
class Overlap:
    """An evaluation set, and how many of its sentences are in the training text."""

    name: str
    sentences: int
    source: int
    target: int
    pairs: int

    def __str__(self) -> str:
        return (
            f"{self.source:,} source and {self.target:,} target sentences of {self.name}'s {self.sentences:,} "
            f"({self.pairs:,} whole pairs)"
        )


@dataclass(frozen=True)
class OverlapRecord:
    """`overlap.json`: the evaluation sets, dev first."""

    sets: Sequence[Overlap]


class Overlaps(JsonArtifact[OverlapRecord]):
    """`overlap.json`: counts. `overlap.tsv`: the set, line and kind (source, target or pair) of each sentence found."""

    record_file = "overlap.json"

    @property
    def summary(self) -> str:
        """The pairs found in each set."""
        return "in the training text: " + ", ".join(map(str, self.load().sets))


def check_apart(splits: Mapping[str, Iterable[Path]]) -> None:
    """Raises UserError if train or dev has a file with the same content as a later split's.

    `splits` begin with train and dev. Test sets may share files, e.g. sources with several references.
    """
    first: dict[str, tuple[str, Path]] = {}
    for name, paths in splits.items():
        for path in paths:
            split, same = first.setdefault(cached_sha256(path), (name, path))
            if split != name and split in list(splits)[:2]:
                files = path if path == same else f"{same} and {path}"
                raise UserError(
                    f"{split} and {name} have the same text ({files}), so scores would mean nothing; "
                    "name another file for one of them"
                )


def count(context: Context, corpus: Corpus, sets: Sequence[EvaluationSet]) -> Overlaps:
    """Counts the sentences of evaluation sets in a cleaned corpus, with one call of `context.map` per shard.

    Holds only the evaluation sets in memory. Warns of sets with much overlap.
    Raises UserError if a file cannot be read.
    """
    shards, held_out = corpus.shards, [text.shard for text in sets]
    sources, targets, pairs = set[str](), set[str](), set[tuple[str, str]]()
    for done, found in enumerate(context.map(found_in, ((shard, held_out) for shard in shards)), start=1):
        for seen, here in zip((sources, targets, pairs), found, strict=True):
            seen |= here
        context.progress(done, len(shards), "shards")
    overlaps, rows = [], []
    for text, shard in zip(sets, held_out, strict=True):
        name, lines = text.load().name, list(read_pairs(shard.source, shard.target))
        kinds = {"source": 0, "target": 0, "pairs": 0}
        for number, pair in enumerate(lines, 1):
            for kind, is_found in zip(kinds, (pair[0] in sources, pair[1] in targets, pair in pairs), strict=True):
                kinds[kind] += is_found
                rows += [f"{name}\t{number}\t{kind.removesuffix('s')}"] * is_found
        overlap = Overlap(name, len(lines), **kinds)
        # Trees without words are often equal.
        most = overlap.source if corpus.symbols else max(overlap.source, overlap.target)
        if most >= WARN_FRACTION * len(lines):
            remedy = "remove them from one of the two (overlap.tsv lists them)"
            log.warning("%s are in the training text, so scores may be too good; %s", overlap, remedy)
        overlaps.append(overlap)
    write_lines(context.folder / "overlap.tsv", rows)
    return Overlaps(context.folder).write(OverlapRecord(overlaps))


def found_in(shard: Shard, held_out: Sequence[Shard]) -> tuple[set[str], set[str], set[tuple[str, str]]]:
    """Returns the evaluation sources, targets and pairs that are in a shard."""
    wanted = {pair for text in held_out for pair in read_pairs(text.source, text.target)}
    wanted_sources, wanted_targets = {source for source, _ in wanted}, {target for _, target in wanted}
    sources, targets, pairs = set[str](), set[str](), set[tuple[str, str]]()
    for pair in read_pairs(shard.source, shard.target):
        source, target = pair
        if source in wanted_sources:
            sources.add(source)
            if pair in wanted:
                pairs.add(pair)
        if target in wanted_targets:
            targets.add(target)
    return sources, targets, pairs
