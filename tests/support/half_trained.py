"""A checkpoint that has half learned to map some lines to others: outputs vary, and most of them end."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from model.config import BEGIN_ID, END_ID, PAD_ID, TransformerConfig
from model.transformer import Transformer
from pipeline.text import vocabulary
from pipeline.training.checkpoints import write_weights
from tests.support.batches import hidden_of
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint

KNOWN = [line for line in SENTENCES if line.strip()]
LINES = [*KNOWN, "A dög ."]
"""Test sentences. The last has a character that the vocabulary lacks, or spells in bytes."""
TINY = TransformerConfig(60, n_layers=2, d_model=32, d_ff=48, n_heads=2, d_k=16, d_v=16, dropout=0.0)
MAX_UPDATES = 1000
MODELS: dict[str, dict[str, Any]] = {
    "sinusoids": {},
    "learned": {"n_layers": 1, "positions": "learned", "max_positions": 257},
    "bytes": {"byte_fallback": True},
}


def ids(processor: Any, lines: list[str]) -> torch.Tensor:
    sentences = [torch.tensor([*processor.encode(line), END_ID]) for line in lines]
    return pad_sequence(sentences, batch_first=True, padding_value=PAD_ID)


def shifted(target_BT: torch.Tensor) -> torch.Tensor:
    return F.pad(target_BT[:, :-1], (1, 0), value=BEGIN_ID)


def make_model(folder: Path, byte_fallback: bool = False, **more: Any) -> Transformer:
    make_checkpoint(folder, byte_fallback=byte_fallback)
    processor = vocabulary.load(folder / "joint.model")
    source_BS = ids(processor, KNOWN)
    target_BT = source_BS.roll(1, dims=0)
    torch.manual_seed(4)
    model = Transformer(dataclasses.replace(TINY, vocabulary_size=len(processor), **more))
    for name, weight in model.state_dict().items():  # larger, as if not fused: more lines end, in other outputs
        weight.mul_((2 if "w_qkv" in name else 1.5 if "w_kv" in name else 1) ** 0.5)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(MAX_UPDATES):
        logits_BTV = model.logits(hidden_of(model, source_BS, shifted(target_BT)))
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten(), ignore_index=PAD_ID)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if loss <= 0.5:
            break
    else:
        raise AssertionError(f"the loss is {loss:.2f} after {MAX_UPDATES} updates")
    write_weights(folder, model.state_dict(), dataclasses.asdict(model.config))
    return model.eval()
