"""A checkpoint that is instant to create: a real sentencepiece model of a few lines, and random weights."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.config import TransformerConfig
from model.transformer import Transformer
from pipeline.artifacts import Checkpoint, Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.settings import VocabularySettings
from pipeline.text import vocabulary
from tests.support.parallel_text import corpus_of, set_of

SENTENCES = [
    "Two dogs run over the grass .",
    "",
    "A man in a blue shirt is standing on a ladder cleaning a window .",
    "A dog .",
    "   ",
    "Two men are standing near a large red ladder and the small dog runs over the blue grass .",
    "The window is red .",
]


def make_corpus(folder: Path) -> Corpus:
    return corpus_of(folder, [(sentence, sentence) for sentence in SENTENCES if sentence.strip()])


def make_set(folder: Path, name: str = "first") -> EvaluationSet:
    lines = SENTENCES if name == "first" else SENTENCES[::-1] * 6
    return set_of(folder, zip(lines, lines, strict=True), name)


def make_checkpoint(
    folder: Path, corpus: Corpus | None = None, byte_fallback: bool = False, pieces: int = 60, **more: Any
) -> Checkpoint:
    corpus = corpus or make_corpus(folder.with_name("corpus"))
    folder.mkdir(parents=True, exist_ok=True)
    size = pieces + 256 * byte_fallback
    settings = VocabularySettings(size=size, character_coverage=1, byte_fallback=byte_fallback)
    vocabulary.learn(Context(folder), corpus, settings).path.rename(folder / "joint.model")
    torch.manual_seed(1)
    config = TransformerConfig(size, 1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, **more)
    made = Transformer(config).state_dict().items()  # larger, as if not fused: outputs vary more
    weights = {name: (2 if "w_qkv" in name else 1.5 if "w_kv" in name else 1) ** 0.5 * x for name, x in made}
    save_file(weights, folder / "model.safetensors")
    Checkpoint(folder).write_json("model.json", dataclasses.asdict(config))
    return Checkpoint(folder)
