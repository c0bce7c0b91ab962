"""Recorded attention weights are those the model used, and recording changes nothing."""

import sys

import pytest
import torch

from model.config import BEGIN_ID, END_ID, PAD_ID, TransformerConfig
from model.recording import KINDS, AttentionWeights, RecordingDecoder, attentions, recording
from model.rows import shift_right
from model.search import beam_search
from model.transformer import Transformer
from tests.support.batches import hidden_of

CONFIG = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=5, dropout=0.0)
SOURCE_BS = torch.tensor([[5, 9, 7, 4, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID]])
INPUTS_BT = shift_right(torch.tensor([[6, 8, END_ID], [7, 12, 4]]))


def peaked_model(seed: int = 0) -> Transformer:
    """A random float64 model whose attention is far from uniform."""
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
    """Every row is a distribution over what the query may see: no padding, no later position."""
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
    """With recording, without it and after it the output is the same to the last bit, of model and search."""
    model = peaked_model().float()
    with torch.no_grad():
        plain = hidden_of(model, SOURCE_BS, INPUTS_BT)
        with recording(model):
            assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
        assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
    assert all(one.on_weights is None for kind in KINDS for one in attentions(model, kind))
    for source in ([5, 9, 7, END_ID], [13, END_ID]):
        source_1S = torch.tensor([source])
        assert beam_search(RecordingDecoder(model), source_1S, n_best=3) == beam_search(model, source_1S, n_best=3)


@pytest.mark.parametrize("pruned", [False, True], ids=["kept", "pruned"])
def test_the_search_s_weights_are_those_of_forward(pruned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the incremental decoder used for each output of a beam is what forward uses when that output is given.

    The tree of hypotheses branches and dies out on the way, and the cache is pruned at every position or never.
    """
    monkeypatch.setattr("model.cache.FIRST_PRUNED_TOKENS", 0 if pruned else sys.maxsize)
    monkeypatch.setattr("model.cache.PRUNING_GROWTH", 0)
    branched = 0
    for seed in range(4):
        model = peaked_model(seed)
        source_1S = torch.tensor([[5, 9, 7, 4, 15, END_ID]])
        decoder = RecordingDecoder(model)
        outputs = beam_search(decoder, source_1S, beam_size=4, max_extra_tokens=8, n_best=4)[0]
        branched += len({tuple(output.tokens[:2]) for output in outputs}) > 1
        for output in outputs:
            found = decoder.weights(output.tokens)
            with torch.no_grad(), recording(model) as expected:
                hidden_of(model, source_1S, torch.tensor([[BEGIN_ID, *output.tokens]]))
            for kind in KINDS:
                assert len(getattr(found, kind)) == CONFIG.n_layers
                for mine, theirs in zip(getattr(found, kind), getattr(expected, kind), strict=True):
                    torch.testing.assert_close(mine, theirs[0], rtol=1e-9, atol=1e-12)
    assert branched
