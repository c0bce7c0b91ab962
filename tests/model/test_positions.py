import math

import torch

from model.batch import Rows
from model.config import TransformerConfig
from model.transformer import FIRST_POSITIONS, Transformer, sinusoids


def test_sinusoids_are_the_formula() -> None:
    d_model = 6
    for first, n_positions in ((0, 5), (5000, 3)):
        pe_LD = sinusoids(n_positions, d_model, first)
        for row in range(n_positions):
            for i in range(d_model // 2):
                angle = (first + row) / 10000 ** (2 * i / d_model)
                assert abs(pe_LD[row, 2 * i] - math.sin(angle)) < 1e-7
                assert abs(pe_LD[row, 2 * i + 1] - math.cos(angle)) < 1e-7


def test_longer_sentences_leave_the_table_in_place() -> None:
    """A CUDA graph keeps reading it. The values are those of a preallocated table."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(9, n_layers=1, d_model=6, d_ff=8, n_heads=1, d_k=4, d_v=4)).eval()
    table_LD = model._sinusoids_LD
    source = Rows.padded(torch.full((1, FIRST_POSITIONS + 44), 5), torch.float32)
    x_ND = model.encode(source).x_ND
    assert model._sinusoids_LD is table_LD
    model.reserve_positions(FIRST_POSITIONS + 44)
    assert len(model._sinusoids_LD) == FIRST_POSITIONS + 44
    assert torch.equal(model.encode(source).x_ND, x_ND)
