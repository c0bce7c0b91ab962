"""The typed artifacts that flow from stage to stage. Each can be opened by hand: text, Arrow, safetensors, JSON.

Corpus -> Vocabulary -> EncodedDataset -> TrainingRun -> Checkpoint -> Hypotheses -> Scores
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact, JsonArtifact
from pipeline.store.figures import AveragingFigures, ChoiceFigures, DecodingFigures, ScoringFigures, TrainingFigures

ALL = "all"
"""The name of the collection if there is only one."""
CHOICE_FILE = "parsing.json"
METRICS = "metrics.jsonl"
"""The file of a training run with one JSON line a report, which goes on after an interruption."""
CHECKPOINTS = "checkpoints"
"""The folder of a run that holds the checkpoints it kept."""
VOCABULARY_FILE = "joint.model"


@dataclass(frozen=True)
class Shard:
    """Aligned text files with one sentence per line."""

    source: Path
    target: Path
    pairs: int
    collection: str = ALL
    """The collection its pairs come from, e.g. "europarl-v7"; known for training shards only."""


@dataclass(frozen=True)
class Corpus(Artifact):
    """Aligned UTF-8 text: `corpus.json` and `<split>/<number>.<language>`.

    corpus.json: {"source": "en", "target": "de", "splits": {"train": [pairs in shard 0, ...], "dev": [...], ...},
    "collections": [collection of training shard 0, ...], "report": {...}}. Splits other than `train` and `dev` are test
    sets; the first of them is the main one. Where the target side is of linearised trees, `symbols.txt` lists their
    symbols, and `<split>.gold.trees` holds the trees themselves of dev and test, one a line.
    """

    figures_file = "corpus.json"

    @property
    def languages(self) -> tuple[str, str]:
        """The source and target languages, e.g. ("en", "de")."""
        described = self.read_json("corpus.json")
        return described["source"], described["target"]

    @property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return list(self.read_json("corpus.json")["splits"])

    @property
    def summary(self) -> str:
        """The number of training pairs, and how many were dropped for each reason."""
        described = self.read_json("corpus.json")
        dropped = {reason: pairs for reason, pairs in described["report"].get("dropped", {}).items() if pairs}
        reasons = (
            f", dropped {', '.join(f'{pairs:,} {reason}' for reason, pairs in dropped.items())}" if dropped else ""
        )
        return f"{sum(described['splits']['train']):,} training pairs{reasons}"

    @property
    def test_sets(self) -> list[str]:
        """The names of the test sets, the main one first."""
        return [name for name in self.splits if name not in ("train", "dev")]

    def shards(self, split: str) -> list[Shard]:
        """Returns the aligned files of a split. Raises UserError if there is no such split."""
        described = self.read_json("corpus.json")
        if split not in described["splits"]:
            raise UserError(f"{self.folder} has no split {split!r}; it has {', '.join(described['splits'])}")
        source, target, sizes = described["source"], described["target"], described["splits"][split]
        collections = described["collections"] if split == "train" else [ALL] * len(sizes)
        return [
            Shard(self.shard_path(split, i, source), self.shard_path(split, i, target), pairs, collection)
            for i, (pairs, collection) in enumerate(zip(sizes, collections, strict=True))
        ]

    def shard_path(self, split: str, number: int, language: str) -> Path:
        """Returns the path of one language's side of a shard."""
        return self.folder / split / f"{number:05d}.{language}"

    @property
    def parts(self) -> Path:
        """A folder for shards on their way into the corpus, named as no split can be; its user removes it."""
        return self.folder / ".parts"

    @property
    def symbols_path(self) -> Path:
        """The file of the symbols that the target side consists of; there is none if it is text."""
        return self.folder / "symbols.txt"

    @property
    def symbols(self) -> list[str]:
        """The symbols that linearised trees consist of, sorted; none if the target side is text."""
        return self.symbols_path.read_text(encoding="utf-8").split() if self.symbols_path.exists() else []

    def gold_trees(self, split: str) -> Path:
        """Returns the path of the bracketed trees of dev or a test set, tags included, in the order of its pairs."""
        return self.folder / f"{split}.gold.trees"

    def describe(
        self,
        languages: tuple[str, str],
        splits: dict[str, list[int]],
        report: dict[str, Any],
        collections: Sequence[str] | None = None,
    ) -> None:
        """Writes corpus.json: the number of pairs in each shard of each split, and a report on how they were made.

        `collections` names the collection of each training shard; None means that there is only one.
        """
        self.write_json(
            "corpus.json",
            {
                "source": languages[0],
                "target": languages[1],
                "splits": splits,
                "collections": [ALL] * len(splits.get("train", [])) if collections is None else list(collections),
                "report": report,
            },
        )


@dataclass(frozen=True)
class Vocabulary(Artifact):
    """A joint sentencepiece model, `joint.model` (ids: model.config), with the human-readable `joint.vocab`.

    vocabulary.json: {"size", "sampled_pairs": pairs it was learned on, "train_pairs": pairs available, "words":
    different words it was learned from}.
    """

    figures_file = "vocabulary.json"

    @property
    def path(self) -> Path:
        """The sentencepiece model."""
        return self.folder / "joint.model"


@dataclass(frozen=True)
class EncodedDataset(Artifact):
    """Token ids as Arrow IPC files `<split>/<number>.arrow`, and `dataset.json`; read by `pipeline.text.encoding`."""

    figures_file = "dataset.json"

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raises UserError if a model's vocabulary size is not that of the dataset."""
        pieces = self.read_json("dataset.json")["vocabulary_size"]
        if pieces != vocabulary_size:
            raise UserError(
                f"the model has vocabulary_size = {vocabulary_size}, but the dataset {self.folder} has {pieces} "
                f"pieces; set vocabulary_size to {pieces}"
            )


@dataclass(frozen=True)
class TrainingRun(JsonArtifact[TrainingFigures]):
    """A finished run: `run.json`, `metrics.jsonl`, `checkpoints/<update>/`, `joint.model`."""

    figures_file = "run.json"

    def checkpoint(self, update: int) -> "Checkpoint":
        """Returns the weights that the run kept after an update; their vocabulary is the run's."""
        return Checkpoint(self.folder / CHECKPOINTS / f"{update:08d}")

    @property
    def summary(self) -> str:
        """Updates and target tokens."""
        run = self.load()
        return f"{run.updates:,} updates, {run.target_tokens / 1e6:.2f} M target tokens"


def read_metrics_line(line: bytes | str) -> dict[str, Any] | None:
    """Returns the content of a line of `metrics.jsonl`, None if it is damaged or half-written."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and isinstance(content.get("update"), int) else None


@dataclass(frozen=True)
class Checkpoint(JsonArtifact[AveragingFigures]):
    """Weights that translate: `model.safetensors`, `model.json` (the configuration) and `joint.model`."""

    figures_file = "averaging.json"

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration. Raises UserError where `model.json` is missing or describes no model."""
        return self.read("model.json", _config_adapter())

    @property
    def vocabulary(self) -> Path:
        """The sentencepiece model; for a checkpoint within a run, the run's."""
        own, of_run = self.folder / VOCABULARY_FILE, self.folder.parent.parent / VOCABULARY_FILE
        return of_run if self.folder.parent.name == CHECKPOINTS and not own.exists() else own


@cache
def _config_adapter() -> TypeAdapter[TransformerConfig]:
    return TypeAdapter(Annotated[TransformerConfig, BeforeValidator(_refuse_unknown_fields)])


def _refuse_unknown_fields(fields: Any) -> Any:
    """Raises ValueError where a configuration has a field of a newer version: it may change what the weights mean."""
    unknown = fields.keys() - TransformerConfig.__dataclass_fields__.keys() if isinstance(fields, dict) else set()
    if unknown:
        raise ValueError(f"this version knows no {', '.join(sorted(unknown))}")
    return fields


@dataclass(frozen=True)
class CTranslate2Model(Artifact):
    """A checkpoint as CTranslate2 loads it: `model.bin`, `config.json`, `shared_vocabulary.json`, and the checkpoint's
    `joint.model` and `model.json`."""

    @property
    def config(self) -> TransformerConfig:
        """The model's configuration. Raises UserError where `model.json` is missing or describes no model."""
        return Checkpoint(self.folder).config


@dataclass(frozen=True)
class ChosenParser(Checkpoint):
    """The checkpoint of the candidate that was chosen, and `parsing.json`."""

    @property
    def choice(self) -> ChoiceFigures:
        """What was chosen, and from what. Raises UserError where `parsing.json` is missing or broken."""
        return self.read(CHOICE_FILE, TypeAdapter(ChoiceFigures))

    @property
    def summary(self) -> str:
        """The chosen candidate and beam, with their F1."""
        choice = self.choice
        beam_size = choice.settings.beam_size
        return f"{choice.model}, beam {beam_size}: F1 {choice.beams[beam_size]:.2f}"


@dataclass(frozen=True)
class Hypotheses(JsonArtifact[DecodingFigures]):
    """Translations of the test sets, one sentence a line: `<test set>.<language>`, and `decoding.json`."""

    figures_file = "decoding.json"


@dataclass(frozen=True)
class Scores(JsonArtifact[ScoringFigures]):
    """`scores.json`: for each test set both BLEU scores with their signatures."""

    figures_file = "scores.json"

    @property
    def summary(self) -> str:
        """Both scores of each test set."""
        return "; ".join(f"{name}: {scores.text}" for name, scores in self.load().test_sets.items())
