"""Statistics of prepared text: dropped pairs and the reasons, sentence lengths, the vocabulary's sample, padding.

    statistics = measure("WMT 2014", corpus, vocabulary, dataset, TrainingSettings())

Lengths are in tokens and include END_ID. They are read shard by shard; the earlier stages recorded all other figures.
Memory is bounded: for a large corpus the epoch is planned on a sample.
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
"""The reason for which encoding leaves out pairs; cleaning's reasons are `pipeline.text.cleaning.REASONS`."""
PLANNED_PAIRS = 5_000_000
"""Most pairs for which an epoch is planned here."""
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Collection:
    """Training pairs from one archive or file."""

    name: str
    read: int
    kept: int
    """Pairs in the encoded training split: `read` minus `dropped`."""
    dropped: Mapping[str, int]
    """Dropped pairs by reason."""
    unknown_fraction: float
    """Share of unknown tokens in the kept pairs."""


@dataclass(frozen=True)
class Split:
    """An encoded split."""

    name: str
    unknown_fraction: float
    """Share of unknown tokens on both sides together."""


@dataclass(frozen=True)
class Lengths:
    """Sentence lengths on one side of the training split."""

    language: str
    mean: float
    quantiles: Mapping[str, int]
    """{"0.5": 26, ...}: the smallest length that this share of the sentences does not exceed."""
    sentences: Sequence[int]
    """Number of sentences with 0, 1, 2, ... tokens, up to the longest."""


@dataclass(frozen=True)
class Plan:
    """The plan of the first epoch."""

    budget_tokens: int
    micro_batches: int
    every: int
    """Only every N-th pair was planned; unless N is 1, the figures are estimates."""
    updates: int | None
    padding_fraction: float | None
    """Share of padding among all tokens computed."""
    problem: str
    """Why no plan is possible, in which case there are no figures; otherwise empty."""


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
    """`vocabulary.json`: the pieces of the vocabulary and the text that they were learned on."""
    plan: Plan

    @property
    def pair(self) -> str:
        """The language pair, e.g. "en-de"."""
        return "-".join(side.language for side in self.lengths)

    @property
    def total(self) -> Collection:
        """All collections together."""
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
    """Measures a cleaned corpus, its vocabulary and its token ids, and plans a first epoch with these settings.

    Raises UserError if a file is missing or damaged.
    """
    # It imports pyarrow, and every command imports this module.
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
    """Joins the figures of cleaning and encoding; `encoded` is empty if cleaning kept nothing of the collection."""
    dropped = {**cleaned["dropped"], TOO_MANY_TOKENS: encoded.get("left_out", 0)}
    return Collection(name, cleaned["read"], encoded.get("pairs", 0), dropped, _unknown_fraction([encoded]))


def _unknown_fraction(counts: Sequence[Mapping[str, int]]) -> float:
    tokens = sum(count.get("source_tokens", 0) + count.get("target_tokens", 0) for count in counts)
    return sum(count.get("unknown", 0) for count in counts) / max(tokens, 1)


def _lengths(language: str, sentences: NDArray[np.int64]) -> Lengths:
    """Summarizes a histogram: `sentences` counts those with 0, 1, 2, ... tokens."""
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
    except UserError as error:  # with other settings the text may still be usable
        return Plan(budget_tokens, micro_batches, every, None, None, str(error))
    return Plan(budget_tokens, micro_batches, every, len(plan) * every, plan.padding_fraction, "")
