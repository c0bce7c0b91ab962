"""Statistics of prepared text: dropped pairs by reason, sentence lengths, the vocabulary's sample, padding.

    statistics = measure("WMT 2014", corpus, vocabulary, dataset, overlaps, TrainingSettings())

Lengths are in tokens including END_ID; earlier stages recorded all other counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.artifacts import ALL, Corpus, EncodedDataset, Vocabulary
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text.batching import plan_epoch
from pipeline.text.overlap import Overlap, Overlaps

TOO_MANY_TOKENS = "too_many_tokens"
"""Encoding's reason for excluding pairs; cleaning's reasons are `pipeline.text.cleaning.REASONS`."""
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
    suspicious: Mapping[str, int] = field(default_factory=dict)
    """Pairs with a cause for suspicion (`CleaningSettings.drop`), kept or dropped."""


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
    unknown: Mapping[str, float]
    """Share of unknown tokens over both sides, by split."""
    normalised: int
    """Training lines that were changed other than at their ends (`pipeline.text.normalisation`)."""
    lengths: tuple[Lengths, Lengths]
    """Lengths of the source side and of the target side."""
    sample: Mapping[str, int]
    """`vocabulary.json`: the vocabulary's size and training sample."""
    plan: Plan
    overlaps: Sequence[Overlap] = ()
    """Of dev set and test sets with the training text."""

    @property
    def pair(self) -> str:
        """The language pair, e.g. "en-de"."""
        return "-".join(side.language for side in self.lengths)

    @property
    def total(self) -> Collection:
        """The sum of all collections."""
        every = self.collections
        return Collection(
            ALL,
            sum(each.read for each in every),
            sum(each.kept for each in every),
            {reason: sum(each.dropped[reason] for each in every) for reason in every[0].dropped},
            self.unknown["train"],
            dict(sum((Counter(each.suspicious) for each in every), Counter())),
        )


def measure(
    data: str,
    corpus: Corpus,
    vocabulary: Vocabulary,
    dataset: EncodedDataset,
    overlaps: Overlaps,
    settings: TrainingSettings,
) -> CorpusStatistics:
    """Measures a cleaned corpus, its vocabulary and token ids, and plans a first epoch with these settings.

    Raises UserError if a file is missing or damaged.
    """
    # Imported here, since it imports pyarrow and every command imports this module.
    from pipeline.text.encoding import EncodedSplit

    encoded = dataset.read_json("dataset.json")
    cleaned = corpus.load().report
    split = EncodedSplit.open(dataset, "train")
    source, target = split.source_lengths, split.target_lengths
    return CorpusStatistics(
        data=data,
        collections=[
            _collection(name, counts, encoded["collections"].get(name, {}))
            for name, counts in cleaned["collections"].items()
        ],
        unknown={name: _unknown_fraction(shards) for name, shards in encoded["splits"].items()},
        normalised=cleaned["normalised"],
        lengths=(_lengths(corpus.languages[0], source), _lengths(corpus.languages[1], target)),
        sample=vocabulary.read_json("vocabulary.json"),
        plan=_plan(source, target, settings),
        overlaps=overlaps.load().sets,
    )


def _collection(name: str, cleaned: Mapping[str, Any], encoded: Mapping[str, int]) -> Collection:
    """Joins the counts of cleaning and encoding; `encoded` is empty if cleaning dropped the whole collection."""
    dropped = {**cleaned["dropped"], TOO_MANY_TOKENS: encoded.get("left_out", 0)}
    unknown = _unknown_fraction([encoded])
    return Collection(name, cleaned["read"], encoded.get("pairs", 0), dropped, unknown, cleaned["suspicious"])


def _unknown_fraction(counts: Sequence[Mapping[str, int]]) -> float:
    tokens = sum(count.get("source_tokens", 0) + count.get("target_tokens", 0) for count in counts)
    return sum(count.get("unknown", 0) for count in counts) / max(tokens, 1)


def _lengths(language: str, lengths: NDArray[np.int32]) -> Lengths:
    sentences = np.bincount(lengths)
    ends = sentences.cumsum()
    return Lengths(
        language,
        mean=float(lengths.mean()),
        quantiles={f"{part:g}": int(ends.searchsorted(part * ends[-1])) for part in QUANTILES},
        sentences=sentences.tolist(),
    )


def _plan(source_lengths: NDArray[np.int32], target_lengths: NDArray[np.int32], settings: TrainingSettings) -> Plan:
    try:
        plan = plan_epoch(source_lengths, target_lengths, settings, epoch=0)
    except UserError as error:  # the text may still work with other settings
        return Plan(settings.budget_tokens, None, None, str(error))
    return Plan(settings.budget_tokens, len(plan), plan.padding_fraction, "")
