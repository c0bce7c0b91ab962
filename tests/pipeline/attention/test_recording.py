"""Recorded attention weights are the model's, and recording changes nothing."""

import torch

from model.batch import shift_right
from model.config import END_ID, PAD_ID, TransformerConfig
from model.transformer import Transformer
from pipeline.attention.recording import KINDS, AttentionWeights, attentions, recording
from tests.support.batches import hidden_of

CONFIG = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=5, dropout=0.0)
SOURCE_BS = torch.tensor([[5, 9, 7, 4, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID]])
INPUTS_BT = shift_right(torch.tensor([[6, 8, END_ID], [7, 12, 4]]))


def peaked_model(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(CONFIG).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2.5 if parameter.dim() > 1 else 1
    return model


@torch.no_grad()
def recorded(model: Transformer) -> AttentionWeights:
    with recording(model) as weights:
        hidden_of(model, SOURCE_BS, INPUTS_BT)
    return weights


def test_rows_sum_to_one_and_masks_are_kept() -> None:
    weights = recorded(peaked_model())
    for kind, shape in zip(KINDS, ((2, 3, 5, 5), (2, 3, 3, 3), (2, 3, 3, 5)), strict=True):
        layers = getattr(weights, kind)
        assert [tuple(layer.shape) for layer in layers] == [shape, shape]
        for layer in layers:
            torch.testing.assert_close(layer.sum(-1), torch.ones(shape[:-1], dtype=torch.float64))
            assert not layer.requires_grad
    for layer in (*weights.encoder, *weights.cross):
        assert (layer[1, ..., 3:] == 0).all()
        assert (layer[1, ..., :3] > 0).all()
    for layer in weights.decoder:
        assert (layer.triu(1) == 0).all()
        assert (layer.tril() > 0).sum() == 2 * 3 * 6


def test_recording_changes_no_bit_and_leaves_nothing_behind() -> None:
    model = peaked_model().float()
    with torch.no_grad():
        plain = hidden_of(model, SOURCE_BS, INPUTS_BT)
        with recording(model):
            assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
        assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
    assert all(one.function.on_weights is None for kind in KINDS for one in attentions(model, kind))
