"""Writes the paper's base model with random weights, which no end of a sentence stops: to time decoding at width 512.

aiayn prepare --files own/text.toml --set vocabulary.size=37000 --out prepared
python -m examples.random_model prepared/vocabulary/joint.model random
python -m benchmarks.decoding random --src test.en --rounds 3
"""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import torch
import typer
from sentencepiece import SentencePieceProcessor

from model.config import BASE
from model.transformer import Transformer
from pipeline.training.checkpoints import write_weights


def main(pieces: Path, out: Path) -> None:
    """Writes a model with these pieces into a new folder."""
    config = replace(BASE, vocabulary_size=SentencePieceProcessor(model_file=str(pieces)).get_piece_size())
    torch.manual_seed(1)
    out.mkdir(parents=True, exist_ok=True)
    write_weights(out, Transformer(config).state_dict(), asdict(config))
    shutil.copy(pieces, out / "joint.model")


if __name__ == "__main__":
    typer.run(main)
