"""A parser that is instant to create: generated trees, their real vocabulary, and random weights."""

from pathlib import Path
from typing import Any

from pipeline.artifacts import CHOICE_FILE, Checkpoint, Corpus, EvaluationSet
from pipeline.corpora.embedded import EmbeddedSettings, SplitName, generate, generate_set
from pipeline.records import AveragingRecord, ChoiceRecord
from pipeline.settings import CleaningSettings, DecodingSettings
from tests.support.contexts import new_context
from tests.support.tiny_checkpoint import make_checkpoint

SENTENCES = ["The man hears the black dog .", "", "We went into the ( old ) city ."]


SETTINGS = EmbeddedSettings(target="trees", train_pairs=300, dev_pairs=12, test_pairs=12)


def make_trees(folder: Path) -> Corpus:
    return generate(new_context(folder / "trees"), SETTINGS.text("train"), CleaningSettings())


def make_tree_set(folder: Path, name: SplitName = "test") -> EvaluationSet:
    return generate_set(new_context(folder / name), SETTINGS.text(name))


def make_parser(folder: Path, corpus: Corpus, **more: Any) -> Checkpoint:
    checkpoint = make_checkpoint(folder, corpus, pieces=300, **more)
    checkpoint.write(AveragingRecord(updates=(1,)))
    return checkpoint


def choose(parser: Checkpoint, search: DecodingSettings) -> None:
    """Records a search as chosen on the dev set."""
    choice = ChoiceRecord(
        model="supervised", models={"supervised": 50.0}, beams={search.beam_size: 50.0}, settings=search
    )
    parser.write_json(CHOICE_FILE, choice.model_dump(mode="json"))
