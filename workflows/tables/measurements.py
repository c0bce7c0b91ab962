"""Reads what was measured for one cell of a table from the artifacts of its stages, and from nowhere else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any, Self

from model.config import TransformerConfig
from pipeline.evaluation.costs import Cost, CostFigures
from pipeline.evaluation.dev_bleu import DevBleu
from pipeline.evaluation.perplexity import Perplexity, PerplexityFigures
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.artifacts import Checkpoint, Corpus, Hypotheses, Scores, TrainingRun
from pipeline.store.figures import BleuScores, DecodingFigures, TrainingFigures
from pipeline.text.aligned import read_references
from pipeline.text.lines import read_lines

N_SAMPLES, N_WORST = 10, 5
"""The number of sample translations that a cell has, and of its worst."""


@dataclass(frozen=True)
class TrainedInputs:
    """The artifacts behind one trained model, but for its scores."""

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
    perplexity: Perplexity
    cost: Cost

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts by what each is, in the order in which they were made."""
        return {
            "corpus": self.corpus,
            "training": self.run,
            "checkpoint": self.checkpoint,
            "translations": self.hypotheses,
            "perplexity": self.perplexity,
            "cost": self.cost,
        }

    def measured(self) -> "Trained":
        """Reads their files. Raises UserError where a file is missing, broken or lacks a figure."""
        raise NotImplementedError


@dataclass(frozen=True)
class MeasuredInputs(TrainedInputs):
    """The artifacts behind one cell that was run."""

    scores: Scores
    word_by_word: Scores | None = None
    """Scores of word-by-word substitution on the same test sets, if there are any."""
    split: str = ""
    """What the scores of the table are of; empty: the main test set."""
    dev_bleu: DevBleu | None = None
    """Scores of every kept checkpoint on the dev set, where asked for."""

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts by what each is."""
        return {**super().artifacts, "scores": self.scores}

    def measured(self) -> "Measured":
        """Reads their files, as `Measured.from_artifacts` does."""
        return Measured.from_artifacts(self)


@dataclass(frozen=True)
class Sample:
    """A sentence of the test set and what the model made of it."""

    source: str
    reference: str
    hypothesis: str
    chrf: float | None = None
    """sacreBLEU's chrF of the sentence, in percent, where it was asked for."""


@dataclass(frozen=True)
class Trained:
    """What the files of one trained model hold, but for its scores."""

    pair: str
    model: str
    data: str
    train_pairs: int
    test_set: str
    """The test set whose scores stand in the table: the main one, or the dev set."""
    run: TrainingFigures
    config: TransformerConfig
    averaged_updates: tuple[int, ...]
    perplexity: PerplexityFigures
    cost: CostFigures
    decoding: DecodingFigures
    metrics: tuple[Mapping[str, Any], ...]
    """The lines of `metrics.jsonl`."""
    manifests: Mapping[str, Mapping[str, Any]]
    """The manifests of the published artifacts, by what each is, e.g. "training"."""

    @property
    def label(self) -> str:
        """The cell's name in the table, e.g. `EN-DE base`."""
        return f"{self.pair.upper()} {self.model}"

    @property
    def settings(self) -> TrainingSettings:
        """The settings of the training."""
        return self.run.settings

    @property
    def sentences(self) -> int:
        """The sentences of the test set."""
        return self.decoding.test_sets[self.test_set].sentences

    def final_figures(self) -> dict[str, float]:
        """Returns what was measured after the training, by the names that it has in MLflow."""
        return {
            "final_dev_nll": self.perplexity.dev_nll,
            "final_dev_perplexity": self.perplexity.dev_perplexity,
            "paper_way_flop": self.cost.paper_way_flop,
            "counted_flop": self.cost.counted_flop,
            "train_s": self.cost.train_s,
            "parameters": self.run.parameters,
        }

    def score_texts(self) -> dict[str, str]:
        """Returns the scores in words, by what was scored."""
        raise NotImplementedError

    def series(self) -> dict[str, dict[int, float]]:
        """Returns what was measured of several checkpoints: by name in MLflow, then by update."""
        return {}

    def samples_text(self) -> str:
        """Returns samples of what the model wrote, as text."""
        raise NotImplementedError


def trained_values(inputs: TrainedInputs, test_set: str) -> dict[str, Any]:
    """Reads the values of the fields of `Trained`. Raises UserError where a file is missing or lacks a figure."""
    published = {name: made for name, made in inputs.artifacts.items() if (made.folder / MANIFEST).exists()}
    return {
        "pair": inputs.pair,
        "model": inputs.model,
        "data": inputs.data,
        "train_pairs": sum(shard.pairs for shard in inputs.corpus.shards("train")),
        "test_set": test_set,
        "run": inputs.run.load(),
        "config": inputs.checkpoint.config,
        "averaged_updates": inputs.checkpoint.load().updates,
        "perplexity": inputs.perplexity.load(),
        "cost": inputs.cost.load(),
        "decoding": inputs.hypotheses.load(),
        "metrics": read_metrics(inputs.run),
        "manifests": {name: made.manifest for name, made in published.items()},
    }


@dataclass(frozen=True)
class Measured(Trained):
    """What the files of one cell hold."""

    scores: Mapping[str, BleuScores]
    """The scores by test set."""
    samples: tuple[Sample, ...]
    word_by_word: Mapping[str, BleuScores] | None = None
    dev_bleu: Mapping[int, BleuScores] | None = None
    """The dev set's scores by the update of the checkpoint."""

    @property
    def main_scores(self) -> BleuScores:
        """The scores that stand in the table."""
        return self.scores[self.test_set]

    @property
    def sentences(self) -> int:
        """The sentences that were scored."""
        return self.main_scores.sentences

    @classmethod
    def from_artifacts(cls, inputs: MeasuredInputs) -> Self:
        """Reads the files behind a cell. Raises UserError where a file is missing, broken or lacks a figure."""
        corpus = inputs.corpus
        split = inputs.split or corpus.test_sets[0]
        return cls(
            **trained_values(inputs, split),
            scores=inputs.scores.load().test_sets,
            samples=_samples(corpus, inputs.hypotheses, split),
            word_by_word=inputs.word_by_word.load().test_sets if inputs.word_by_word else None,
            dev_bleu=inputs.dev_bleu.load().checkpoints if inputs.dev_bleu else None,
        )

    def final_figures(self) -> dict[str, float]:
        """Returns the figures of every model, and both scores of each test set."""
        figures = super().final_figures()
        for test_set, scores in self.scores.items():
            figures |= {f"paper_bleu.{test_set}": scores.paper_bleu, f"sacrebleu.{test_set}": scores.sacrebleu}
        return figures

    def score_texts(self) -> dict[str, str]:
        """Returns both scores of each test set."""
        return {
            f"BLEU, {name}": f"paper BLEU {scores.paper_bleu:.2f}, sacreBLEU {scores.sacrebleu:.2f}"
            for name, scores in self.scores.items()
        }

    def series(self) -> dict[str, dict[int, float]]:
        """Returns both scores of the dev set by update, where they were measured."""
        if not self.dev_bleu:
            return {}
        over_time = self.dev_bleu.items()
        return {
            "dev_paper_bleu": {update: scores.paper_bleu for update, scores in over_time},
            "dev_sacrebleu": {update: scores.sacrebleu for update, scores in over_time},
        }

    def samples_text(self) -> str:
        """Returns the sample translations."""
        return "\n\n".join(
            f"source:     {sample.source}\nreference:  {sample.reference}\nhypothesis: {sample.hypothesis}"
            for sample in self.samples
        )


def read_metrics(run: TrainingRun) -> tuple[dict[str, Any], ...]:
    """Returns the lines of `metrics.jsonl` in order: those of updates and those of measurements on the dev set."""
    return tuple(json.loads(line) for line in read_lines(run.folder / "metrics.jsonl"))


def worst_samples(inputs: MeasuredInputs, n: int = N_WORST) -> tuple[Sample, ...]:
    """Returns the sentences of the table's test set with the lowest chrF, the worst first (sacreBLEU's `CHRF`)."""
    from sacrebleu.metrics.chrf import CHRF

    triples = _triples(inputs.corpus, inputs.hypotheses, inputs.split or inputs.corpus.test_sets[0])
    metric = CHRF()
    scored = ((metric.sentence_score(triple[2], [triple[1]]).score, i) for i, triple in enumerate(triples))
    return tuple(Sample(*triples[i], chrf=score) for score, i in nsmallest(n, scored))


def _triples(corpus: Corpus, hypotheses: Hypotheses, split: str) -> list[tuple[str, str, str]]:
    """Returns source, reference and translation of each sentence of a split."""
    sources = [line for shard in corpus.shards(split) for line in read_lines(shard.source)]
    translations = read_lines(hypotheses.folder / f"{split}.{corpus.languages[1]}")
    return list(zip(sources, read_references(corpus, split), translations, strict=False))


def _samples(corpus: Corpus, hypotheses: Hypotheses, split: str) -> tuple[Sample, ...]:
    """Takes sentences at even distances over the split."""
    triples = _triples(corpus, hypotheses, split)
    distance = max(1, len(triples) // N_SAMPLES)
    return tuple(Sample(*triple) for triple in islice(triples, 0, None, distance))[:N_SAMPLES]
