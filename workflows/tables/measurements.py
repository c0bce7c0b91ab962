"""Reads what was measured for one cell of a table from the artifacts of its stages, and from nowhere else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, ClassVar, Self

from model.config import TransformerConfig
from pipeline.evaluation.costs import Cost, CostFigures
from pipeline.evaluation.dev_bleu import DevBleu
from pipeline.evaluation.perplexity import Perplexity, PerplexityFigures
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import Checkpoint, Corpus, Hypotheses, Scores, TrainingRun
from pipeline.store.figures import BleuScores, DecodingFigures, TrainingFigures
from pipeline.store.store import Store
from pipeline.text.aligned import read_references
from pipeline.text.lines import read_lines
from workflows.engine.dag import Ref, Step, resolved, to_artifact

N_SAMPLES = 10
"""The number of sample translations that a cell has."""


@dataclass(frozen=True)
class TrainedModel:
    """A trained model and what was measured of it: steps while the DAG is drawn, artifacts in a stage."""

    pair: str
    """"en-de" or "en-fr"."""
    model: str
    """"base" or "big", or a row of Table 3."""
    data: str
    """What the training data are, in a few words for the reader, e.g. "Multi30k task 1"."""
    corpus: Ref[Corpus]
    training: Ref[TrainingRun]
    checkpoint: Ref[Checkpoint]
    hypotheses: Ref[Hypotheses]
    perplexity: Ref[Perplexity]
    cost: Ref[Cost]

    serves: ClassVar[str] = "pipeline.export.mlflow_model"
    """The module that saves the model as an MLflow model and serves it."""
    command: ClassVar[str] = "translate"
    """What `aiayn` does with the model."""

    @property
    def steps(self) -> tuple[Step[Any], ...]:
        """All its steps."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(value for value in values if isinstance(value, Step))

    @property
    def results(self) -> tuple[Step[Any], ...]:
        """Those of its steps that no other of them needs; once they are done, so is all of it."""
        needed = {step for result in self.steps for step in result.inputs}
        return tuple(step for step in self.steps if step not in needed)

    def published(self, store: Store) -> Self:
        """Returns the same model with the artifacts that a store has of its steps."""
        model: Self = resolved(self, lambda step: step.published(store))
        return model

    def measured(self) -> "Trained":
        """Reads their files. Raises UserError where a file is missing, broken or lacks a figure."""
        raise NotImplementedError


@dataclass(frozen=True)
class Translation(TrainedModel):
    """A trained translator (Tables 2 and 3)."""

    scores: Ref[Scores]
    word_by_word: Ref[Scores] | None = None
    """Scores of word-by-word substitution on the same test sets, if there are any."""
    split: str = ""
    """What the scores of the table are of; empty: the main test set."""
    dev_bleu: Ref[DevBleu] | None = None
    """Scores of every kept checkpoint on the dev set, where asked for."""

    def measured(self) -> "Measured":
        """Reads their files. Raises UserError where a file is missing, broken or lacks a figure."""
        corpus, hypotheses = to_artifact(self.corpus), to_artifact(self.hypotheses)
        split = self.split or corpus.test_sets[0]
        return Measured(
            **trained_values(self, split),
            scores=to_artifact(self.scores).load().test_sets,
            samples=_samples(corpus, hypotheses, split),
            word_by_word=to_artifact(self.word_by_word).load().test_sets if self.word_by_word else None,
            dev_bleu=to_artifact(self.dev_bleu).load().checkpoints if self.dev_bleu else None,
        )


@dataclass(frozen=True)
class Sample:
    """A sentence of the test set and what the model made of it."""

    source: str
    reference: str
    hypothesis: str


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
    libraries: Mapping[str, str]
    """The versions of the libraries that the training ran on; empty where its artifact was not published."""

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


def trained_values(model: TrainedModel, test_set: str) -> dict[str, Any]:
    """Reads the values of the fields of `Trained`. Raises UserError where a file is missing or lacks a figure."""
    checkpoint, training = to_artifact(model.checkpoint), to_artifact(model.training)
    is_published = (training.folder / MANIFEST).exists()
    return {
        "pair": model.pair,
        "model": model.model,
        "data": model.data,
        "train_pairs": sum(shard.pairs for shard in to_artifact(model.corpus).shards("train")),
        "test_set": test_set,
        "run": training.load(),
        "config": checkpoint.config,
        "averaged_updates": checkpoint.load().updates,
        "perplexity": to_artifact(model.perplexity).load(),
        "cost": to_artifact(model.cost).load(),
        "decoding": to_artifact(model.hypotheses).load(),
        "metrics": read_metrics(training),
        "libraries": training.manifest.get("libraries", {}) if is_published else {},
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


def _samples(corpus: Corpus, hypotheses: Hypotheses, split: str) -> tuple[Sample, ...]:
    """Takes sentences at even distances over the split."""
    sources = [line for shard in corpus.shards(split) for line in read_lines(shard.source)]
    translations = read_lines(hypotheses.folder / f"{split}.{corpus.languages[1]}")
    triples = zip(sources, read_references(corpus, split), translations, strict=False)
    distance = max(1, len(sources) // N_SAMPLES)
    return tuple(Sample(*triple) for triple in islice(triples, 0, distance * N_SAMPLES, distance))
