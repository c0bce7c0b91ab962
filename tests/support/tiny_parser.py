"""A parser that takes no time to make: generated trees, a real vocabulary of them, and random weights."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.config import TransformerConfig
from model.transformer import Transformer
from pipeline.corpora.embedded import EmbeddedSettings, generate
from pipeline.settings import VocabularySettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, Corpus
from pipeline.store.figures import AveragingFigures
from pipeline.text import vocabulary

PIECES = 300
SENTENCES = ["The man hears the black dog .", "", "We went into the ( old ) city ."]


def make_trees(folder: Path, train: int = 300, dev: int = 12, test: int = 12) -> Corpus:
    """Makes generated trees with gold ones beside the symbols, in `folder`/trees."""
    (folder / "trees").mkdir(parents=True)
    settings = EmbeddedSettings(target="trees", train_pairs=train, dev_pairs=dev, test_pairs=test)
    return generate(Context(folder / "trees"), settings)


def make_parser(folder: Path, corpus: Corpus, **more: Any) -> Checkpoint:
    """Makes a checkpoint whose outputs are symbols in no order."""
    folder.mkdir(parents=True)
    settings = VocabularySettings(size=PIECES, character_coverage=1, byte_fallback=False)
    learned = vocabulary.learn(Context(folder), corpus, settings)
    learned.path.rename(folder / "joint.model")
    torch.manual_seed(2)
    config = TransformerConfig(PIECES, 1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, **more)
    save_file(Transformer(config).state_dict(), folder / "model.safetensors")
    checkpoint = Checkpoint(folder)
    checkpoint.write_json("model.json", dataclasses.asdict(config))
    checkpoint.write(AveragingFigures(updates=(1,)))
    return checkpoint
