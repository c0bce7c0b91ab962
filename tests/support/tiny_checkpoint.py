"""A checkpoint that takes no time to make: a real sentencepiece model of a few lines, and random weights."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.config import TransformerConfig
from model.transformer import Transformer
from pipeline.settings import VocabularySettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, Corpus
from pipeline.text import vocabulary

SENTENCES = [
    "Two dogs run over the grass .",
    "",
    "A man in a blue shirt is standing on a ladder cleaning a window .",
    "A dog .",
    "   ",
    "Two men are standing near a large red ladder and the small dog runs over the blue grass .",
    "The window is red .",
]


def write_split(corpus: Corpus, split: str, lines: list[str]) -> None:
    (corpus.folder / split).mkdir()
    for language in ("en", "de"):
        text = "".join(line + "\n" for line in lines)
        corpus.shard_path(split, 0, language).write_text(text, encoding="utf-8", newline="\n")


def make_corpus(folder: Path) -> Corpus:
    """Makes a training split and two test sets of seven and forty-two lines, of which two in seven are blank."""
    corpus = Corpus(folder)
    corpus.folder.mkdir()
    splits = {"train": [s for s in SENTENCES if s.strip()], "first": SENTENCES, "second": SENTENCES[::-1] * 6}
    for split, lines in splits.items():
        write_split(corpus, split, lines)
    corpus.describe(("en", "de"), {split: [len(lines)] for split, lines in splits.items()}, {})
    return corpus


def make_checkpoint(
    folder: Path, corpus: Corpus, byte_fallback: bool = False, pieces: int = 60, **more: Any
) -> Checkpoint:
    """Makes a checkpoint with random weights, few pieces and, if asked for, the bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size = pieces + 256 * byte_fallback
    settings = VocabularySettings(size=size, character_coverage=1, byte_fallback=byte_fallback)
    learned = vocabulary.learn(Context(folder), corpus, settings)
    learned.path.rename(folder / "joint.model")
    torch.manual_seed(1)
    config = TransformerConfig(size, 1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, **more)
    save_file(Transformer(config).state_dict(), folder / "model.safetensors")
    Checkpoint(folder).write_json("model.json", dataclasses.asdict(config))
    return Checkpoint(folder)
