from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention import ScaledDotProductAttention, SelfAttention, attention
from model.banded import NeighbourhoodAttention, neighbourhood_attention, out_of_reach, reach
from model.batch import PaddedLayout, Rows, masking_bias
from model.config import BEGIN_ID, END_ID, PAD_ID, TransformerConfig
from model.flops import count_parameters
from model.transformer import Transformer
from tests.support.batches import hidden_of

TINY = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0.0)
LENGTHS = (1, 2, 3, 5, 8, 9, 16, 17, 31)
WINDOWS = (1, 2, 3, 4, 7, 8, 16, 40)


def inputs(length: int, device: str, sentences: int = 3) -> list[Tensor]:
    torch.manual_seed(length)
    sizes = (sentences, 2, length)
    return [torch.randn(*sizes, width, dtype=torch.float64).to(device).requires_grad_() for width in (4, 4, 5)]


@pytest.mark.gpu
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("is_padded", [False, True])
def test_equals_masked_full_attention(window: int, is_padded: bool, device: str) -> None:
    for length in LENGTHS:
        q, k, v = given = inputs(length, device, sentences=4)
        lengths_B = torch.tensor([length, max(1, length - 1), max(1, length - 3), max(1, length // 4)], device=device)
        padding_BL = torch.arange(length, device=device) >= lengths_B[:, None]
        padding_B11L = padding_BL[:, None, None] if is_padded else None
        masked = out_of_reach(length, window, q.device)
        if padding_B11L is not None:
            # A query that sees nothing but padding has no weights at all; here it sees itself.
            masked = (masked | padding_B11L) & ~torch.eye(length, dtype=torch.bool, device=device)
        real_BHLV = ~padding_BL[:, None, :, None] if is_padded else torch.ones(1, device=device)
        weights_LV = torch.randn(length, 5, dtype=torch.float64).to(device)
        both = []
        bias = masking_bias(masked, torch.float64)
        for x_BHLV in (neighbourhood_attention(q, k, v, window, padding_B11L), attention(q, k, v, bias)):
            assert x_BHLV.isfinite().all()
            both.append([x_BHLV * real_BHLV, *torch.autograd.grad((x_BHLV * real_BHLV * weights_LV).sum(), given)])
        torch.testing.assert_close(both[0], both[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("window", "seen"), [(1, [5]), (2, [4, 5]), (3, [4, 5, 6]), (4, [3, 4, 5, 6])])
def test_a_neighbourhood_has_r_positions_around_the_query(window: int, seen: list[int]) -> None:
    """r positions, centred; for even r, one more before than after."""
    assert sum(reach(window)) + 1 == window
    assert (~out_of_reach(11, window, torch.device("cpu"))[5]).nonzero().flatten().tolist() == seen


def test_recorded_weights_are_those_of_the_neighbourhood() -> None:
    q, k, v = inputs(17, "cpu")
    recorded: list[Tensor] = []
    x_BHLV = neighbourhood_attention(q, k, v, 4, on_weights=lambda weights: recorded.append(weights) or weights)
    torch.testing.assert_close(x_BHLV, neighbourhood_attention(q, k, v, 4), rtol=1e-10, atol=1e-12)
    (weights_BHLM,) = recorded
    assert not weights_BHLM[..., out_of_reach(17, 4, q.device)].any()
    torch.testing.assert_close(weights_BHLM.sum(-1), torch.ones_like(weights_BHLM[..., 0]))
    assert not neighbourhood_attention(q, k, v, 4, on_weights=torch.zeros_like).any()


def test_rows_of_padding_alone_do_not_spoil_the_gradient() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        layer = SelfAttention(12, 3, 4, 4, NeighbourhoodAttention(window=2)).to(dtype)
        x_ND = torch.randn(2 * 20, 12).to(dtype).requires_grad_()
        padding_BL = torch.zeros(2, 20, dtype=torch.bool)
        padding_BL[1, 3:] = True
        y_ND = layer(x_ND, PaddedLayout(2, 20, masking_bias(padding_BL[:, None, None], dtype)))
        y_ND[:20].sum().backward()
        assert y_ND.isfinite().all()
        assert x_ND.grad.isfinite().all()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in layer.parameters())


def test_the_encoder_alone_is_restricted() -> None:
    torch.manual_seed(0)
    full = Transformer(TINY).double()
    sources_BS = torch.tensor([[5, 9, 7, 4, 6, 8, 11, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID]])
    inputs_BT = torch.tensor([[BEGIN_ID, 6, 7], [BEGIN_ID, 9, 9]])
    wide, narrow = (Transformer(replace(TINY, attention_window=window)).double() for window in (16, 3))
    for model in (wide, narrow):
        model.load_state_dict(full.state_dict())
    of_full, of_wide, of_narrow = (hidden_of(model, sources_BS, inputs_BT) for model in (full, wide, narrow))
    torch.testing.assert_close(of_wide, of_full, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(of_narrow, of_full)
    assert count_parameters(narrow.config) == count_parameters(full.config)
    assert all(type(layer.self_attention.function) is ScaledDotProductAttention for layer in narrow.decoder)

    changed_BS = sources_BS.clone()
    changed_BS[0, 7] = 10
    before_BSD, after_BSD = (
        PaddedLayout(2, 8, None).by_sentence(narrow.encode(Rows.padded(source_BS, torch.float64)).x_ND)
        for source_BS in (sources_BS, changed_BS)
    )
    differs_S = (before_BSD[0] != after_BSD[0]).any(dim=-1)
    assert differs_S.tolist() == [False] * 5 + [True] * 3  # two layers, one position to the left in each
