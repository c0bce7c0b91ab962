"""The typed artifacts passed between stages. All can be opened by hand: text, Arrow, safetensors, JSON.

    Corpus -> Vocabulary -> EncodedDataset -> TrainingRun -> Checkpoint      # training text and the dev set
    Checkpoint, EvaluationSet -> Hypotheses -> Scores                        # for each test set

Training does not depend on test sets, so adding one retrains nothing.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.config import TransformerConfig
from pipeline import records
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Artifact, JsonArtifact, adapter_of

ALL = "all"
"""Name of the only collection."""
CHOICE_FILE = "parsing.json"
METRICS = "metrics.jsonl"
"""A run's metrics, one JSON line per report; appended to after an interruption."""
CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints that a run kept."""
VOCABULARY_FILE = "joint.model"
CONFIG_FILE = "model.json"


@dataclass(frozen=True)
class Shard:
    """Aligned text files, one sentence a line."""

    source: Path
    target: Path
    pairs: int
    collection: str = ALL
    """The collection of its pairs, e.g. "europarl-v7"."""


class Corpus(JsonArtifact[records.CorpusRecord]):
    """Aligned training text in UTF-8, `<number>.<language>`, and `corpus.json`."""

    record_file = "corpus.json"

    @property
    def languages(self) -> tuple[str, str]:
        """The source and target languages, e.g. ("en", "de")."""
        record = self.load()
        return record.source, record.target

    @property
    def summary(self) -> str:
        """The number of training pairs, and of dropped and suspicious pairs by reason."""
        shown, report = f"{self.pairs:,} training pairs", self.load().report
        for kind in ("dropped", "suspicious"):
            found = ", ".join(f"{pairs:,} {reason}" for reason, pairs in report.get(kind, {}).items() if pairs)
            shown += f", {kind}: {found}" if found else ""
        return shown

    @property
    def shards(self) -> list[Shard]:
        """The aligned files, in order; empty ones are left out."""
        record = self.load()
        return [
            Shard(self.shard_path(i, record.source), self.shard_path(i, record.target), pairs, collection)
            for i, (pairs, collection) in enumerate(zip(record.shards, record.collections, strict=True))
            if pairs
        ]

    @property
    def pairs(self) -> int:
        """The number of training pairs."""
        return sum(self.load().shards)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of linearised trees, sorted; empty if the target side is text."""
        return self.load().symbols

    def shard_path(self, number: int, language: str) -> Path:
        """Returns the path of one side of a shard."""
        return self.folder / f"{number:05d}.{language}"


class EvaluationSet(JsonArtifact[records.EvaluationSetRecord]):
    """The dev set or a test set: `<name>.<source language>`, the references `<name>.<target language>`, aligned, and
    `evaluation_set.json`.

    If the references are linearised trees, `gold.trees` holds the bracketed trees with tags, one a line.
    """

    record_file = "evaluation_set.json"

    @property
    def summary(self) -> str:
        """The number of sentences."""
        return f"{self.load().sentences:,} sentences"

    @property
    def source(self) -> Path:
        """The file of the source sentences."""
        record = self.load()
        return self.folder / f"{record.name}.{record.source}"

    @property
    def references(self) -> Path:
        """The file of the references."""
        record = self.load()
        return self.folder / f"{record.name}.{record.target}"

    @property
    def shard(self) -> Shard:
        """Both files."""
        return Shard(self.source, self.references, self.load().sentences)

    @property
    def gold_trees(self) -> Path:
        """The file of the bracketed trees; missing if the references are text."""
        return self.folder / "gold.trees"


class Vocabulary(Artifact):
    """A joint sentencepiece model, `joint.model` (ids: model.config), and its readable form, `joint.vocab`.

    vocabulary.json: {"size", "sampled_pairs": pairs it was trained on, "train_pairs": pairs available, "words":
    distinct words that it was learned from}.
    """

    record_file = "vocabulary.json"

    @property
    def path(self) -> Path:
        """The sentencepiece model."""
        return self.folder / VOCABULARY_FILE


class EncodedDataset(Artifact):
    """Token ids as Arrow IPC files `<split>/<number>.arrow`, and `dataset.json`; read by `pipeline.text.encoding`."""

    record_file = "dataset.json"

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raises UserError if the dataset has another vocabulary size."""
        pieces = self.read_json("dataset.json")["vocabulary_size"]
        if pieces != vocabulary_size:
            raise UserError(
                f"the model has vocabulary_size = {vocabulary_size}, but the dataset {self.folder} has {pieces} "
                f"pieces; set vocabulary_size to {pieces}"
            )


class TrainingRun(JsonArtifact[records.TrainingRecord]):
    """A finished run: `run.json`, `metrics.jsonl`, `checkpoints/<update>/`, `joint.model`."""

    record_file = "run.json"

    def checkpoint(self, update: int) -> "Checkpoint":
        """Returns the checkpoint kept after an update. It uses the run's vocabulary."""
        return Checkpoint(self.folder / CHECKPOINTS / f"{update:08d}")

    @property
    def summary(self) -> str:
        """The number of updates and target tokens."""
        run = self.load()
        return f"{run.updates:,} updates, {run.target_tokens / 1e6:.2f} M target tokens"


def read_metrics_line(line: bytes | str) -> dict[str, Any] | None:
    """Parses a line of `metrics.jsonl`; None if it is damaged or half-written."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and isinstance(content.get("update"), int) else None


class Checkpoint(JsonArtifact[records.AveragingRecord]):
    """A trained model: `model.safetensors`, `model.json` (the configuration) and `joint.model`."""

    record_file = "averaging.json"

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration. Raises UserError if `model.json` is missing or invalid."""
        # A field of a newer version may change the meaning of the weights.
        return self.read(CONFIG_FILE, adapter_of(TransformerConfig), extra="forbid")

    @property
    def vocabulary(self) -> Path:
        """The sentencepiece model; for a checkpoint within a run, the run's."""
        own, of_run = self.folder / VOCABULARY_FILE, self.folder.parent.parent / VOCABULARY_FILE
        return of_run if self.folder.parent.name == CHECKPOINTS and not own.exists() else own


class ChosenParser(Checkpoint):
    """The chosen candidate's checkpoint, and `parsing.json`."""

    @property
    def search(self) -> DecodingSettings:
        """The chosen search."""
        return self.choice.settings

    @property
    def choice(self) -> records.ChoiceRecord:
        """The choice and its candidates. Raises UserError if `parsing.json` is missing or invalid."""
        return self.read(CHOICE_FILE, adapter_of(records.ChoiceRecord))

    @property
    def summary(self) -> str:
        """The chosen candidate and beam with their F1."""
        choice = self.choice
        beam_size = choice.settings.beam_size
        return f"{choice.model}, beam {beam_size}: F1 {choice.beams[beam_size]:.2f}"


class Hypotheses(JsonArtifact[records.DecodingRecord]):
    """A model's output for an evaluation set, one sentence a line: `<name>.<target language>`, and `decoding.json`."""

    record_file = "decoding.json"

    def path(self, text: EvaluationSet) -> Path:
        """Returns the file of hypotheses for `text`."""
        return self.folder / text.references.name


class Scores(JsonArtifact[records.ScoringRecord]):
    """`scores.json`: both BLEU scores of an evaluation set, with their signatures."""

    record_file = "scores.json"

    @property
    def summary(self) -> str:
        """Both scores."""
        return self.load().text
