"""Statistics of prepared text: dropped pairs by reason, sentence lengths, the vocabulary's sample, padding.

    statistics = measure("WMT 2014", corpus, vocabulary, dataset, TrainingSettings())

Lengths are in tokens including END_ID and are read shard by shard; earlier stages recorded all other counts. To bound
memory, the epoch of a large corpus is planned on a sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import ALL, Corpus, EncodedDataset, Vocabulary
from pipeline.text.batching import plan_epoch

TOO_MANY_TOKENS = "too_many_tokens"
"""Encoding's reason for excluding pairs; cleaning's reasons are `pipeline.text.cleaning.REASONS`."""
PLANNED_PAIRS = 5_000_000
"""Maximum number of pairs planned here."""
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Collection:
    """Training pairs from one archive or file."""

    name: str
    read: int
    kept: int
    """Pairs in the encoded training split: `read` minus all `dropped`."""
    dropped: Mapping[str, int]
    """Dropped pairs by reason."""
    unknown_fraction: float
    """Share of unknown tokens in the kept pairs."""


@dataclass(frozen=True)
class Split:
    """An encoded split."""

    name: str
    unknown_fraction: float
    """Share of unknown tokens over both sides."""


@dataclass(frozen=True)
class Lengths:
    """Sentence lengths on one side of the training split."""

    language: str
    mean: float
    quantiles: Mapping[str, int]
    """{"0.5": 26, ...}: the smallest length not exceeded by this share of sentences."""
    sentences: Sequence[int]
    """Number of sentences with 0, 1, 2, ... tokens."""


@dataclass(frozen=True)
class Plan:
    """The plan of the first epoch."""

    budget_tokens: int
    micro_batches: int
    every: int
    """Every N-th pair was planned; the values are estimates unless N is 1."""
    updates: int | None
    padding_fraction: float | None
    """Share of padding among all computed tokens."""
    problem: str
    """Why no plan is possible; empty if there is one."""


@dataclass(frozen=True)
class CorpusStatistics:
    """The statistics of a prepared corpus."""

    data: str
    """Short name of the data, e.g. "WMT 2014"."""
    collections: Sequence[Collection]
    splits: Sequence[Split]
    lengths: tuple[Lengths, Lengths]
    """Lengths of the source side and of the target side."""
    sample: Mapping[str, int]
    """`vocabulary.json`: the vocabulary's size and training sample."""
    plan: Plan

    @property
    def pair(self) -> str:
        """The language pair, e.g. "en-de"."""
        return "-".join(side.language for side in self.lengths)

    @property
    def total(self) -> Collection:
        """The sum of all collections."""
        return Collection(
            ALL,
            sum(collection.read for collection in self.collections),
            sum(collection.kept for collection in self.collections),
            {
                reason: sum(collection.dropped[reason] for collection in self.collections)
                for reason in self.collections[0].dropped
            },
            next(split.unknown_fraction for split in self.splits if split.name == "train"),
        )


def measure(
    data: str,
    corpus: Corpus,
    vocabulary: Vocabulary,
    dataset: EncodedDataset,
    settings: TrainingSettings,
) -> CorpusStatistics:
    """Measures a cleaned corpus, its vocabulary and token ids, and plans a first epoch with these settings.

    Raises UserError if a file is missing or damaged.
    """
    # Imported here, since it imports pyarrow and every command imports this module.
    from pipeline.text.encoding import shard_lengths

    encoded = dataset.read_json("dataset.json")
    cleaned = corpus.load().report["collections"]
    every = -(-sum(shard["pairs"] for shard in encoded["splits"]["train"]) // PLANNED_PAIRS)
    histograms = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
    sampled: list[list[NDArray[np.int32]]] = [[], []]
    for lengths_of_sides in shard_lengths(dataset, "train"):
        for side, lengths in enumerate(lengths_of_sides):
            histogram = np.bincount(lengths, minlength=len(histograms[side]))
            histogram[: len(histograms[side])] += histograms[side]
            histograms[side] = histogram
            sampled[side].append(lengths[::every].copy())
    return CorpusStatistics(
        data=data,
        collections=[
            _collection(name, counts, encoded["collections"].get(name, {})) for name, counts in cleaned.items()
        ],
        splits=[Split(name, _unknown_fraction(shards)) for name, shards in encoded["splits"].items()],
        lengths=(_lengths(corpus.languages[0], histograms[0]), _lengths(corpus.languages[1], histograms[1])),
        sample=vocabulary.read_json("vocabulary.json"),
        plan=_plan(np.concatenate(sampled[0]), np.concatenate(sampled[1]), every, settings),
    )


def _collection(name: str, cleaned: Mapping[str, Any], encoded: Mapping[str, int]) -> Collection:
    """Joins the counts of cleaning and encoding; `encoded` is empty if cleaning dropped the whole collection."""
    dropped = {**cleaned["dropped"], TOO_MANY_TOKENS: encoded.get("left_out", 0)}
    return Collection(name, cleaned["read"], encoded.get("pairs", 0), dropped, _unknown_fraction([encoded]))


def _unknown_fraction(counts: Sequence[Mapping[str, int]]) -> float:
    tokens = sum(count.get("source_tokens", 0) + count.get("target_tokens", 0) for count in counts)
    return sum(count.get("unknown", 0) for count in counts) / max(tokens, 1)


def _lengths(language: str, sentences: NDArray[np.int64]) -> Lengths:
    """Summarises a histogram of the number of sentences with 0, 1, 2, ... tokens."""
    ends = sentences.cumsum()
    return Lengths(
        language,
        mean=float(np.arange(len(sentences)) @ sentences / ends[-1]),
        quantiles={f"{part:g}": int(ends.searchsorted(part * ends[-1])) for part in QUANTILES},
        sentences=sentences.tolist(),
    )


def _plan(
    source_lengths: NDArray[np.int32], target_lengths: NDArray[np.int32], every: int, settings: TrainingSettings
) -> Plan:
    budget_tokens, micro_batches = settings.budget_tokens, settings.micro_batches
    try:
        plan = plan_epoch(source_lengths, target_lengths, settings, epoch=0)
    except UserError as error:  # the text may still work with other settings
        return Plan(budget_tokens, micro_batches, every, None, None, str(error))
    return Plan(budget_tokens, micro_batches, every, len(plan) * every, plan.padding_fraction, "")
