"""Dropout's probability and scale, and masks that belong to rows."""

import shutil

import pytest
import torch
from torch import Tensor

from model.dropout import Dropout, pair_keys, position_keys, row_keys

N, X, P = 999, 1001, 0.3


def keys_of(update: int = 1, device: str = "cpu", side: int = 0) -> Tensor:
    """Returns the keys of N rows: 27 positions of 37 pairs."""
    keys_N = pair_keys(1, update, torch.arange(37)).repeat_interleave(27)
    return row_keys(keys_N, position_keys(27, side, keys_N.device).repeat(37)).to(device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.15, P])
def test_drops_with_probability_p_and_keeps_the_mean(p: float, dtype: torch.dtype, device: str) -> None:
    """A scale rounded to bfloat16 would be 1.0027 times too large for p = 0.15, and 1.0016 times too small for 0.1."""
    x = (1 + torch.rand(N, X, generator=torch.Generator().manual_seed(1))).to(device, dtype).requires_grad_()
    dropped = Dropout(p, "here", X).to(device).train()(x, keys_of(device=device))
    assert abs((dropped == 0).double().mean().item() - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    scales = (dropped.double() / x.double())[dropped != 0]
    assert scales.mean().item() == pytest.approx(1 / (1 - round(p * 65536) / 65536), rel=1e-4)
    assert scales.std().item() < torch.finfo(dtype).eps
    dropped.backward(x)
    assert torch.equal(x.grad, dropped)


def test_rows_columns_places_updates_and_sides_are_unrelated() -> None:
    """No correlation is beyond chance: of any two columns, or of a mask and another, shifted by rows or columns."""

    def drawn(place: str, keys_N: Tensor) -> Tensor:
        kept_NX = Dropout(P, place, X).train()(torch.ones(N, X), keys_N) != 0
        return (kept_NX.double() - (1 - P)) / (P * (1 - P)) ** 0.5

    here = drawn("encoder.0.attention", keys_of())
    of_columns = torch.corrcoef(here.T)[*torch.triu_indices(X, X, 1)] * N**0.5
    assert of_columns.std().item() == pytest.approx(1, abs=0.02)
    assert of_columns.abs().max() < 6
    for sums in (here.sum(0) / N**0.5, here.sum(1) / X**0.5):
        assert sums.std().item() == pytest.approx(1, abs=0.15)
    shifted = [here.roll(n, dimension) for dimension in (0, 1) for n in (1, 2, 27)]
    others = drawn("encoder.1.attention", keys_of()), drawn("encoder.0.attention", keys_of(2))
    for other in (*shifted, *others, drawn("encoder.0.attention", keys_of(side=1))):
        assert abs((here * other).sum().item()) < 5 * here.numel() ** 0.5


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_dropout_is_the_same_to_the_bit(dtype: torch.dtype, device: str) -> None:
    if device == "cpu" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("torch has no C++ compiler")
    dropout, x = Dropout(P, "here", X).to(device).train(), torch.randn(N, X, device=device).to(dtype).requires_grad_()
    compiled = torch.compile(dropout, fullgraph=True, dynamic=False)
    results = [function(x, keys_of(device=device)) for function in (dropout, compiled)]
    assert torch.equal(*results)
    assert torch.equal(*(torch.autograd.grad(result, x, x)[0] for result in results))


@pytest.mark.gpu
def test_masks_are_of_the_key_alone_and_stay(device: str) -> None:
    """In any order of rows, and in every release, so that stored runs can continue."""
    dropout, keys_N = Dropout(P, "here", X).to(device).train(), keys_of(device=device)
    x_NX = torch.ones(N, X, device=device)
    assert torch.equal(dropout(x_NX.flip(0), keys_N.flip(0)), dropout(x_NX, keys_N).flip(0))
    assert pair_keys(1, 2, torch.tensor([0, 3])).tolist() == [-698327469, -819054213]
    mask = (dropout(torch.ones(1, 16, device=device), keys_N[:1]) != 0).int()
    assert "".join(map(str, mask[0].tolist())) == "0001100111100111"


def test_a_probability_that_rounds_to_1_keeps_something() -> None:
    dropped = Dropout(1 - 1e-9, "here", X).train()(torch.ones(N, X), keys_of())
    assert 0 < dropped.count_nonzero() < 50
    assert dropped.isfinite().all()


def test_evaluation_and_p_0_change_nothing() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.5, "here", X).eval()(x, None) is x
    assert Dropout(0.0, "here", X).train()(x, None) is x
    with pytest.raises(ValueError, match="keys of a batch's rows"):
        Dropout(0.5, "here", X).train()(x, None)
