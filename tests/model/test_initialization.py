import math

import pytest
import torch

from model.config import TransformerConfig
from model.transformer import Transformer

CONFIG = TransformerConfig(
    vocabulary_size=4000, n_layers=2, d_model=64, d_ff=256, n_heads=4, d_k=24, d_v=40, positions="learned"
)


@pytest.fixture(scope="module")
def model() -> Transformer:
    """A model whose sizes all differ, so that mix-ups show."""
    torch.manual_seed(5)
    return Transformer(CONFIG)


def test_embeddings_have_unit_variance_once_scaled(model: Transformer) -> None:
    for weight in (model.embedding.weight, model.positions.weight):
        assert weight.std().item() * math.sqrt(CONFIG.d_model) == pytest.approx(1, rel=0.02)
        assert weight.mean().item() == pytest.approx(0, abs=0.002)


def test_each_projection_is_xavier_uniform_by_itself(model: Transformer) -> None:
    """Every matrix is uniform in [-√(6 / (in + out)), √(6 / (in + out))]; keys and values count as two matrices."""
    keys, values = CONFIG.n_heads * CONFIG.d_k, CONFIG.n_heads * CONFIG.d_v
    checked = 0
    for name, weight in model.named_parameters():
        if weight.dim() < 2 or "embedding" in name or "positions" in name:
            continue
        several = {"w_qkv": [keys, keys, values], "w_kv": [keys, values]}.get(name.split(".")[-2])
        for part in weight.split(several) if several else [weight]:
            bound = math.sqrt(6 / sum(part.shape))
            assert part.abs().max().item() == pytest.approx(bound, rel=0.01), name
            assert part.abs().max().item() <= bound, name
            assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03), name
            checked += 1
    assert checked == CONFIG.n_layers * (4 + 2 + 2 * 4 + 2)
