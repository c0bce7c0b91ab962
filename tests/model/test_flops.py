"""Counted FLOP are compared with torch's counter."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model.batch import Batch
from model.config import OptimizerConfig, TransformerConfig
from model.flops import forward_flop, training_flop
from model.training_step import TrainingStep
from model.transformer import Transformer
from tests.support.batches import hidden_of

SIZES = TransformerConfig(31, n_layers=3, d_model=12, d_ff=20, n_heads=2, d_k=5, d_v=3)


@pytest.mark.parametrize(
    "changed", [{}, {"attention_window": 2}, {"attention": "additive"}, {"attention": "dot_product"}]
)
@pytest.mark.parametrize(("n", "source_length", "target_length"), [(1, 7, 4), (5, 3, 9)])
def test_equals_torchs_counter(n: int, source_length: int, target_length: int, changed: dict[str, Any]) -> None:
    sizes = replace(SIZES, **changed)
    step = TrainingStep(Transformer(sizes), OptimizerConfig(), torch.float32)
    source_BS, target_BT = torch.full((n, source_length), 7), torch.full((n, target_length), 8)
    lengths: Any = ([source_length] * n, torch.tensor([target_length] * n))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        step.model.logits(hidden_of(step.model, source_BS, target_BT))
    assert forward.get_total_flops() == forward_flop(sizes, *lengths)
    with FlopCounterMode(display=False) as both:
        step.accumulate(Batch.padded(source_BS, target_BT, torch.float32), seed=1)
    assert both.get_total_flops() == training_flop(sizes, *lengths)


@pytest.mark.parametrize("window", [0, 2])
def test_sentences_add_up(window: int) -> None:
    source, target, sizes = [3, 8, 5, 8], [4, 1, 9, 2], replace(SIZES, attention_window=window)
    pairs = sum(forward_flop(sizes, [s], [t]) for s, t in zip(source, target, strict=True))
    assert forward_flop(sizes, source, target) == pairs
