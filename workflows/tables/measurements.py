"""Trained models and their results, read from the files of their stages: the only source of measured values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar, NamedTuple, Self

from model.config import TransformerConfig
from pipeline.evaluation.costs import Cost, CostRecord
from pipeline.evaluation.dev_scores import DevScores
from pipeline.evaluation.perplexity import Perplexity, PerplexityRecord
from pipeline.evaluation.search_choice import DecodingChoice
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import METRICS, Checkpoint, Corpus, EvaluationSet, Hypotheses, Scores, TrainingRun
from pipeline.store.records import DecodingRecord, ScoringRecord, TrainingRecord
from pipeline.store.store import Store
from pipeline.text.lines import read_lines
from workflows import paper
from workflows.engine.dag import Ref, Step, resolved, to_artifact
from workflows.profiles.profile import Recipe
from workflows.quantities import rounded

N_SAMPLES = 10
"""The number of samples of a model's output."""


@dataclass(frozen=True)
class TrainedModel:
    """A trained model and its measurements: steps while the DAG is built, artifacts in a stage.

    In a stage, the properties read the artifacts' files, each once. They raise UserError if a file is missing, broken
    or lacks a value.
    """

    pair: str
    """"en-de" or "en-fr"."""
    model: str
    """"base" or "big", or a row of Table 3."""
    data: str
    """A short description of the training data, e.g. "Multi30k task 1"."""
    corpus: Ref[Corpus]
    training: Ref[TrainingRun]
    checkpoint: Ref[Checkpoint]
    evaluation_set: Ref[EvaluationSet]
    """The evaluation behind the table's scores: the main test set, or the dev set."""
    hypotheses: Ref[Hypotheses]
    perplexity: Ref[Perplexity]
    cost: Ref[Cost]
    recipe: Recipe = field(kw_only=True)
    """The settings of the run and of its averaging."""
    dev_scores: Ref[DevScores] | None = field(default=None, kw_only=True)
    """Scores of every kept checkpoint on the dev set, if requested."""

    command: ClassVar[str] = "translate"
    """The model's steps for `aiayn translate` and its like."""
    unit: ClassVar[str] = "pairs"
    """The unit of the training data."""

    @property
    def steps(self) -> tuple[Step[Any], ...]:
        """All steps of the model."""
        values = [getattr(self, field.name) for field in fields(self)]
        parts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(part for part in parts if isinstance(part, Step))

    @property
    def results(self) -> tuple[Step[Any], ...]:
        """The steps that no other step needs; once they are done, all are."""
        needed = {step for result in self.steps for step in result.inputs}
        return tuple(step for step in self.steps if step not in needed)

    def published(self, store: Store) -> Self:
        """Returns the same model with its steps' artifacts from a store."""
        model: Self = resolved(self, lambda step: step.published(store))
        return model

    @property
    def label(self) -> str:
        """The model's name in the table, e.g. `EN-DE base`."""
        return f"{self.pair.upper()} {self.model}"

    @property
    def test_set(self) -> str:
        """The name of the evaluation set behind the table's scores."""
        return to_artifact(self.evaluation_set).load().name

    @property
    def test_text(self) -> str:
        """The evaluation set and its size; WMT 2014's dev set is newstest2013 (`pipeline.corpora.wmt14`)."""
        is_named = self.test_set == "dev" and self.is_on(paper.CORPUS)
        name = paper.VARIATION_TEST_SET if is_named else self.test_set
        return f"{name}, {rounded(to_artifact(self.evaluation_set).load().sentences)} sentences"

    @cached_property
    def train_pairs(self) -> int:
        """The number of training pairs."""
        return to_artifact(self.corpus).pairs

    @property
    def data_text(self) -> str:
        """The training data and its size."""
        return f"{self.data or 'unnamed data'}, {rounded(self.train_pairs)} {self.unit}"

    def is_on(self, corpus: str) -> bool:
        """Whether the training data are of one of the paper's corpora."""
        return corpus in self.data

    @cached_property
    def run(self) -> TrainingRecord:
        """The run's record."""
        return to_artifact(self.training).load()

    @property
    def settings(self) -> TrainingSettings:
        """The run's settings."""
        return self.recipe.training

    @cached_property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """The lines of `metrics.jsonl` in order: updates and dev set measurements."""
        return tuple(json.loads(line) for line in read_lines(to_artifact(self.training).folder / METRICS))

    @property
    def libraries(self) -> Mapping[str, str]:
        """The library versions of the run; empty if its artifact was not published."""
        training = to_artifact(self.training)
        is_published = (training.folder / MANIFEST).exists()
        libraries: Mapping[str, str] = training.manifest.get("libraries", {}) if is_published else {}
        return libraries

    @cached_property
    def config(self) -> TransformerConfig:
        """The architecture."""
        return to_artifact(self.checkpoint).config

    @cached_property
    def averaged_updates(self) -> tuple[int, ...]:
        """The updates of the averaged checkpoints."""
        return to_artifact(self.checkpoint).load().updates

    @cached_property
    def dev(self) -> PerplexityRecord:
        """Perplexity on the dev set."""
        return to_artifact(self.perplexity).load()

    @cached_property
    def costs(self) -> CostRecord:
        """The training cost."""
        return to_artifact(self.cost).load()

    @cached_property
    def decoding(self) -> DecodingRecord:
        """How the evaluation set was decoded."""
        return to_artifact(self.hypotheses).load()

    def nll_over_flop(self) -> list[tuple[float, float]]:
        """Returns the counted FLOP until each validation, with its dev NLL."""
        per_update = self.run.counted_flop / self.run.updates
        return [(line["update"] * per_update, line["dev_nll"]) for line in self.metrics if "dev_nll" in line]

    def final_metrics(self) -> dict[str, float]:
        """Returns the metrics measured after training, by MLflow name."""
        metrics = {
            "final_dev_nll": self.dev.dev_nll,
            "final_dev_perplexity": self.dev.dev_perplexity,
            "final_dev_accuracy": self.dev.dev_accuracy,
            "paper_way_flop": self.costs.paper_way_flop,
            "counted_flop": self.costs.counted_flop,
            "train_s": self.run.train_s,
            "parameters": self.run.parameters,
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def score_texts(self) -> dict[str, str]:
        """Returns the scores in words, by evaluation set."""
        raise NotImplementedError

    def series(self) -> Mapping[str, Mapping[int, float]]:
        """Returns the scores of several checkpoints, if requested: by MLflow name, then by update."""
        return to_artifact(self.dev_scores).load().series if self.dev_scores else {}

    def samples_text(self) -> str:
        """Returns samples of the model's output, as text."""
        raise NotImplementedError


class Sample(NamedTuple):
    """A sentence of the test set with the model's translation."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Translation(TrainedModel):
    """A trained translator (Tables 2 and 3)."""

    scores: Ref[Scores]
    other_scores: tuple[Ref[Scores], ...] = ()
    """Evaluations of the other test sets."""
    word_by_word: Ref[Scores] | None = None
    """Scores of word-by-word substitution on the same test set, if any."""
    decoding_choice: Ref[DecodingChoice] | None = None
    """The search chosen on the dev set, if requested."""

    @cached_property
    def bleu(self) -> Mapping[str, ScoringRecord]:
        """The scores by test set."""
        loaded = [to_artifact(scores).load() for scores in (self.scores, *self.other_scores)]
        return {scores.name: scores for scores in loaded}

    @property
    def main_bleu(self) -> ScoringRecord:
        """The scores in the table."""
        return next(iter(self.bleu.values()))

    @property
    def baseline(self) -> ScoringRecord | None:
        """The scores of word-by-word substitution on the same test set, if any."""
        return to_artifact(self.word_by_word).load() if self.word_by_word else None

    def final_metrics(self) -> dict[str, float]:
        """Returns the metrics of every model, and both scores of each test set."""
        metrics = super().final_metrics()
        for test_set, scores in self.bleu.items():
            metrics |= {f"{name}.{test_set}": score for name, score in scores.defined.items()}
        return metrics

    def score_texts(self) -> dict[str, str]:
        """Returns the scores of each test set, with intervals over its sentences."""
        return {f"BLEU, {name}": scores.long_text for name, scores in self.bleu.items()}

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Translations at regular intervals through the test set."""
        text = to_artifact(self.evaluation_set)
        sources, translations = list(read_lines(text.source)), read_lines(to_artifact(self.hypotheses).path(text))
        triples = zip(sources, read_lines(text.references), translations, strict=False)
        distance = max(1, len(sources) // N_SAMPLES)
        return tuple(Sample(*triple) for triple in islice(triples, 0, distance * N_SAMPLES, distance))

    def samples_text(self) -> str:
        """Returns the sample translations."""
        return "\n\n".join(
            f"source:     {sample.source}\nreference:  {sample.reference}\nhypothesis: {sample.hypothesis}"
            for sample in self.samples
        )
