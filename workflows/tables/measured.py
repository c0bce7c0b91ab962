"""Trained models: as steps of the DAG (`Cell`), and what their artifacts say (`Measured`), the only measured values.

measured(cell).main.paper_bleu     # in a stage, which receives cells of artifacts
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any, Self, TypeVar

from model.config import TransformerConfig
from pipeline.artifacts import METRICS
from pipeline.evaluation.costs import CostRecord
from pipeline.evaluation.parses import ParsesRecord
from pipeline.evaluation.perplexity import PerplexityRecord
from pipeline.evaluation.search_choice import DecodingChoiceRecord
from pipeline.evaluation.tree_scores import BracketScores
from pipeline.parsing.trees import bracketed
from pipeline.records import CorpusRecord, DecodingRecord, EvaluationSetRecord, ScoringRecord, TrainingRecord
from pipeline.settings import CleaningSettings, EncodingSettings, VocabularySettings
from pipeline.store.store import Store
from pipeline.text.lines import read_lines
from workflows.engine.dag import Step, resolved
from workflows.profiles.profile import Recipe
from workflows.quantities import key

Part = TypeVar("Part")
N_SAMPLES, EMPTY = 10, "(empty)"
"""The number of samples of a model's output, and what stands for an empty one."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A model of a table: its steps while the DAG is built; in a stage, their artifacts."""

    pair: str
    """E.g. "en-de"; of a parser, its row in the profile."""
    model: str
    """"base" or "big", or a row of Table 3; of a parser, its own name."""
    data: str
    """A short description of the training data, e.g. "Multi30k task 1"."""
    recipe: Recipe
    """The settings of the run and of its averaging."""
    text_settings: tuple[CleaningSettings, VocabularySettings, EncodingSettings]
    corpus: Any
    training: Any
    checkpoint: Any
    test_set: Any
    """The evaluation set behind the table's scores: the main test set, or the dev set."""
    hypotheses: Any
    perplexity: Any
    cost: Any
    dev_scores: Any = None
    """Scores of every kept checkpoint on the dev set, if requested."""
    parses: Any = None
    """A parser's trees; a translator has none."""
    scores: tuple[Any, ...]
    """Of each test set, the table's first; of a parser, of its trees."""
    word_by_word: Any = None
    """Scores of word-by-word substitution on the same test set, if any."""
    decoding_choice: Any = None
    """The search chosen on the dev set, if requested."""

    def parts(self, kind: type[Part]) -> tuple[Part, ...]:
        """Returns all steps of the model, or in a stage all artifacts, by their class."""
        values = [getattr(self, field.name) for field in fields(self)]
        parts = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(part for part in parts if isinstance(part, kind))

    @property
    def results(self) -> tuple[Step[Any], ...]:
        """The steps that no other step needs; once they are done, all are."""
        steps: tuple[Step[Any], ...] = self.parts(Step)
        needed = {step for result in steps for step in result.inputs}
        return tuple(step for step in steps if step not in needed)

    def published(self, store: Store) -> Self:
        """Returns the same model with its steps' artifacts from a store."""
        model: Self = resolved(self, lambda step: step.published(store, records=True))
        return model

    @property
    def label(self) -> str:
        """The model's name in the table, e.g. `EN-DE base`."""
        return self.model if self.parses else f"{self.pair.upper()} {self.model}"


@dataclass(frozen=True)
class Measured:
    """What the artifacts of a cell say."""

    cell: Cell
    corpus: CorpusRecord
    run: TrainingRecord
    metrics: Sequence[Mapping[str, Any]]
    """The lines of `metrics.jsonl` in order: updates and dev set measurements."""
    manifest: Mapping[str, Any]
    """Of the run, with its version, inputs, times and libraries."""
    config: TransformerConfig
    averaged_updates: tuple[int, ...]
    test_set: EvaluationSetRecord
    decoding: DecodingRecord
    dev: PerplexityRecord
    costs: CostRecord
    series: Mapping[str, Mapping[int, float]]
    """Scores of every kept checkpoint, if requested: by MLflow name, then by update."""
    bleu: Mapping[str, ScoringRecord]
    """By test set, the table's first; empty for a parser."""
    baseline: ScoringRecord | None
    """Of word-by-word substitution on the table's test set, if any."""
    choice: DecodingChoiceRecord | None
    trees: BracketScores | None
    """Of all trees of the dev set, if a parser."""
    parsed: ParsesRecord | None

    @property
    def main(self) -> ScoringRecord:
        """The scores in the table."""
        return next(iter(self.bleu.values()))

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
        scores = {test_set: each.defined for test_set, each in self.bleu.items()}
        if self.trees:
            names = ("f1", "recall", "precision", "complete_match")
            scores[self.test_set.name] = {name: getattr(self.trees, name) for name in names}
        of_sets = {key(name, of): value for of, each in scores.items() for name, value in each.items()}
        return {name: value for name, value in (metrics | of_sets).items() if value is not None}

    def score_texts(self) -> dict[str, str]:
        """Returns the scores of each test set in words, with intervals over its sentences."""
        texts = {f"BLEU, {name}": scores.long_text for name, scores in self.bleu.items()}
        if (total := self.trees) and self.parsed:
            repaired = f"{self.parsed.repaired:,} of {self.parsed.sentences:,} trees repaired"
            of_brackets = f"(recall {total.recall:.2f}, precision {total.precision:.2f})"
            texts[f"F1, {self.test_set.name}"] = f"{total.f1:.2f} {of_brackets}, {repaired}"
        return texts


def measured(cell: Cell) -> Measured:
    """Reads a cell's artifacts. Raises UserError if a file is missing, broken or lacks a value."""
    training = cell.training
    scores = [each.load() for each in cell.scores]
    return Measured(
        cell=cell,
        corpus=cell.corpus.load(),
        run=training.load(),
        metrics=[json.loads(line) for line in read_lines(training.folder / METRICS)],
        manifest=training.manifest,
        config=cell.checkpoint.config,
        averaged_updates=cell.checkpoint.load().updates,
        test_set=cell.test_set.load(),
        decoding=cell.hypotheses.load(),
        dev=cell.perplexity.load(),
        costs=cell.cost.load(),
        series=cell.dev_scores.load().series if cell.dev_scores else {},
        bleu={} if cell.parses else {each.name: each for each in scores},
        baseline=cell.word_by_word.load() if cell.word_by_word else None,
        choice=cell.decoding_choice.load() if cell.decoding_choice else None,
        trees=scores[0].total if cell.parses else None,
        parsed=cell.parses.load() if cell.parses else None,
    )


def samples(cell: Cell) -> list[dict[str, str]]:
    """Returns samples of a model's output: lines at regular intervals through its set, or the first trees."""
    if cell.parses:
        pairs = islice(zip(cell.parses.gold, cell.parses.trees, strict=True), N_SAMPLES)
        return [{"gold": bracketed(gold), "parse": bracketed(tree)} for gold, tree in pairs]
    texts = cell.test_set.source, cell.test_set.references, cell.hypotheses.path(cell.test_set)
    lines = list(zip(*map(read_lines, texts), strict=False))
    names = ("source", "reference", "translation")
    return [dict(zip(names, each, strict=True)) for each in lines[:: max(1, len(lines) // N_SAMPLES)][:N_SAMPLES]]


def listed(samples: Iterable[Mapping[str, str]]) -> str:
    """Returns samples as text, each with a line per side."""
    texts = ("\n".join(f"{f'{name}:':12} {text or EMPTY}" for name, text in each.items()) for each in samples)
    return "\n\n".join(texts) + "\n"
