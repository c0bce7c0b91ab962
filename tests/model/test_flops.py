from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from model.architectures import make_model
from model.batch import Batch
from model.config import OptimizerConfig, TransformerConfig
from model.dropout import pair_keys
from model.flops import forward_flop, training_flop
from model.training_step import TrainingStep
from tests.support.baselines import NAMES, config_of
from tests.support.batches import hidden_of

SIZES = TransformerConfig(31, n_layers=3, d_model=12, d_ff=20, n_heads=2, d_k=5, d_v=3, dropout=0.0)


@pytest.mark.parametrize(
    "config",
    [
        *(SIZES, replace(SIZES, attention_window=2), replace(SIZES, attention_window=2, attention_dropout=0.1)),
        *(replace(SIZES, attention=each) for each in ("additive", "dot_product")),
        *map(config_of, NAMES),
    ],
    ids=str,
)
@pytest.mark.parametrize(("n", "source", "target"), [(1, 7, 4), (5, 3, 9)])
def test_equals_torchs_counter(n: int, source: int, target: int, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward only, and with backward. LSTMs, whose kernels torch does not count, run as products in a loop."""
    monkeypatch.setattr(nn.LSTM, "forward", looped)
    step = TrainingStep(make_model(config), OptimizerConfig(), torch.float32)
    source_BS, target_BT = torch.full((n, source), 7), torch.full((n, target), 8)
    keys_B = pair_keys(0, 1, torch.arange(n))
    lengths: Any = ([source] * n, torch.tensor([target] * n))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        step.model.logits(hidden_of(step.model, source_BS, target_BT, keys_B))
    assert forward.get_total_flops() == forward_flop(config, *lengths)
    with FlopCounterMode(display=False) as both:
        step.accumulate(Batch.padded(source_BS, target_BT, torch.float32).keyed(keys_B))
    unneeded = first_steps_products(config) * n if config.architecture == "recurrent" else 0
    assert both.get_total_flops() == training_flop(config, *lengths) - unneeded


def looped(self: nn.LSTM, x_BLX: Tensor) -> tuple[Tensor, None]:
    h_BF = c_BF = x_BLX.new_zeros(len(x_BLX), self.hidden_size)
    outputs = []
    for x_BX in x_BLX.unbind(1):
        gates = F.linear(x_BX, self.weight_ih_l0, self.bias_ih_l0) + F.linear(h_BF, self.weight_hh_l0, self.bias_hh_l0)
        i, f, g, o = gates.chunk(4, dim=1)
        c_BF = f.sigmoid() * c_BF + i.sigmoid() * g.tanh()
        h_BF = o.sigmoid() * c_BF.tanh()
        outputs.append(h_BF)
    return torch.stack(outputs, dim=1), None


def first_steps_products(config: Any) -> int:
    half, above = config.d_ff // 2, config.n_layers - 1
    return 2 * 4 * (2 * half * half + above * config.d_ff**2 + config.n_layers * config.d_ff**2)


@pytest.mark.parametrize("window", [0, 2])
def test_sentences_add_up(window: int) -> None:
    source, target, sizes = [3, 8, 5, 8], [4, 1, 9, 2], replace(SIZES, attention_window=window)
    pairs = sum(forward_flop(sizes, [s], [t]) for s, t in zip(source, target, strict=True))
    assert forward_flop(sizes, source, target) == pairs
