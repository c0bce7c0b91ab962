"""Reads what was measured for one cell of a table from the artifacts of its stages, and from nowhere else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

from model.config import TransformerConfig
from pipeline.evaluation.costs import Cost, CostFigures
from pipeline.evaluation.dev_bleu import DevBleu
from pipeline.evaluation.perplexity import Perplexity, PerplexityFigures
from pipeline.evaluation.scoring import read_references
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.artifacts import Checkpoint, Corpus, Hypotheses, Scores, TrainingRun
from pipeline.store.figures import BleuScores, DecodingFigures, TrainingFigures
from pipeline.text.lines import read_lines

N_SAMPLES = 10
"""The number of sample translations that a cell has."""


@dataclass(frozen=True)
class MeasuredInputs:
    """The artifacts behind one cell that was run."""

    pair: str
    """"en-de" or "en-fr"."""
    model: str
    """"base" or "big", or a row of Table 3."""
    data: str
    """What the training data are, in a few words for the reader, e.g. "Multi30k task 1"."""
    corpus: Corpus
    run: TrainingRun
    checkpoint: Checkpoint
    hypotheses: Hypotheses
    scores: Scores
    perplexity: Perplexity
    cost: Cost
    word_by_word: Scores | None = None
    """Scores of word-by-word substitution on the same test sets, if there are any."""
    split: str = ""
    """What the scores of the table are of; empty: the main test set."""
    dev_bleu: DevBleu | None = None
    """Scores of every kept checkpoint on the dev set, where asked for."""


@dataclass(frozen=True)
class Sample:
    """A sentence of the test set and what the model made of it."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Measured:
    """What the files of one cell hold."""

    pair: str
    model: str
    data: str
    train_pairs: int
    test_set: str
    """The test set whose scores stand in the table: the main one, or the dev set."""
    run: TrainingFigures
    config: TransformerConfig
    averaged_updates: tuple[int, ...]
    scores: Mapping[str, BleuScores]
    """The scores by test set."""
    perplexity: PerplexityFigures
    cost: CostFigures
    decoding: DecodingFigures
    samples: tuple[Sample, ...]
    metrics: tuple[Mapping[str, Any], ...]
    """The lines of `metrics.jsonl`."""
    manifests: Mapping[str, Mapping[str, Any]]
    """The manifests of the published artifacts, by what each is, e.g. "training"."""
    word_by_word: Mapping[str, BleuScores] | None = None
    dev_bleu: Mapping[int, BleuScores] | None = None
    """The dev set's scores by the update of the checkpoint."""

    @property
    def label(self) -> str:
        """The cell's name in the table, e.g. `EN-DE base`."""
        return f"{self.pair.upper()} {self.model}"

    @property
    def settings(self) -> TrainingSettings:
        """The settings of the training."""
        return self.run.settings

    @property
    def main_scores(self) -> BleuScores:
        """The scores that stand in the table."""
        return self.scores[self.test_set]

    @classmethod
    def from_artifacts(cls, inputs: MeasuredInputs) -> Self:
        """Reads the files behind a cell. Raises UserError where a file is missing, broken or lacks a figure."""
        corpus = inputs.corpus
        split = inputs.split or corpus.test_sets[0]
        artifacts: dict[str, Artifact] = {
            "corpus": corpus,
            "training": inputs.run,
            "checkpoint": inputs.checkpoint,
            "translations": inputs.hypotheses,
            "scores": inputs.scores,
            "perplexity": inputs.perplexity,
            "cost": inputs.cost,
        }
        return cls(
            pair=inputs.pair,
            model=inputs.model,
            data=inputs.data,
            train_pairs=sum(shard.pairs for shard in corpus.shards("train")),
            test_set=split,
            run=inputs.run.load(),
            config=inputs.checkpoint.config,
            averaged_updates=inputs.checkpoint.load().updates,
            scores=inputs.scores.load().test_sets,
            perplexity=inputs.perplexity.load(),
            cost=inputs.cost.load(),
            decoding=inputs.hypotheses.load(),
            samples=_samples(corpus, inputs.hypotheses, split),
            metrics=read_metrics(inputs.run),
            manifests={name: made.manifest for name, made in artifacts.items() if (made.folder / MANIFEST).exists()},
            word_by_word=inputs.word_by_word.load().test_sets if inputs.word_by_word else None,
            dev_bleu=inputs.dev_bleu.load().checkpoints if inputs.dev_bleu else None,
        )


def read_metrics(run: TrainingRun) -> tuple[dict[str, Any], ...]:
    """Returns the lines of `metrics.jsonl` in order: those of updates and those of measurements on the dev set."""
    return tuple(json.loads(line) for line in read_lines(run.folder / "metrics.jsonl"))


def _samples(corpus: Corpus, hypotheses: Hypotheses, split: str) -> tuple[Sample, ...]:
    """Takes sentences at even distances over the split."""
    sources = [line for shard in corpus.shards(split) for line in read_lines(shard.source)]
    translations = read_lines(hypotheses.folder / f"{split}.{corpus.languages[1]}")
    triples = list(zip(sources, read_references(corpus, split), translations, strict=False))
    distance = max(1, len(triples) // N_SAMPLES)
    return tuple(Sample(*triple) for triple in islice(triples, 0, None, distance))[:N_SAMPLES]
