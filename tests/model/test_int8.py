"""Products in int8 against exact ones, and a quantized model against itself and the one that it was made from."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from model.incremental import IncrementalDecoder
from model.int8 import Int8Linear, is_available, quantize
from model.search import beam_search
from model.transformer import Transformer
from tests.model.test_search import batch, plain_search, sources, tiny
from tests.support.batches import hidden_of

pytestmark = pytest.mark.skipif(not is_available(), reason="the processor does not multiply int8 natively")


def uneven(n_rows: int, n_columns: int, seed: int) -> Tensor:
    """Draws a matrix whose rows differ in size by a factor of thousands."""
    generator = torch.Generator().manual_seed(seed)
    size_N1 = 10 ** (torch.rand(n_rows, 1, generator=generator) * 4 - 2)
    return torch.randn(n_rows, n_columns, generator=generator) * size_N1


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_error_is_that_of_rounding(nonnegative: bool) -> None:
    """Each result differs from the exact one by at most half a step of each weight and input, their rows' own."""
    x_ND, weight_XD = uneven(70, 48, seed=1), uneven(33, 48, seed=2)
    if nonnegative:
        x_ND.relu_()
    bias_X = torch.randn(33)
    x_step_N1 = x_ND.abs().amax(1, keepdim=True) / (255 if nonnegative else 127)
    weight_step_X = weight_XD.abs().amax(1) / 127
    from_weights_NX = x_ND.abs().sum(1, keepdim=True) * weight_step_X / 2
    from_inputs_NX = weight_XD.abs().sum(1) * x_step_N1 / 2
    bound_NX = from_weights_NX + from_inputs_NX + 48 * x_step_N1 * weight_step_X / 4
    exact_NX = x_ND.double() @ weight_XD.double().t() + bias_X
    found_NX = Int8Linear(weight_XD, bias_X, nonnegative=nonnegative)(x_ND)
    assert found_NX.dtype == torch.float32
    assert bool(((found_NX - exact_NX).abs() <= bound_NX + 1e-5 * exact_NX.abs() + 1e-6).all())
    assert not torch.allclose(found_NX.double(), exact_NX, rtol=1e-6)


def test_sums_are_exact_where_16_bits_overflow() -> None:
    """Integers come out as their exact product, also where every term is as large as it can be."""
    generator = torch.Generator().manual_seed(3)
    for least in (-127, 127):
        x_ND = torch.randint(least, 128, (5, 2048), generator=generator).float()
        weight_XD = torch.randint(least, 128, (9, 2048), generator=generator).float()
        x_ND[:, 0] = weight_XD[:, 0] = 127
        assert torch.equal(Int8Linear(weight_XD)(x_ND), (x_ND.double() @ weight_XD.double().t()).float())


def test_rows_do_not_depend_on_each_other() -> None:
    """A row has the same bits alone and beside much larger rows; zeros give the bias."""
    x_ND, bias_X = uneven(130, 32, seed=4), torch.randn(20)
    x_ND[7] = 0
    linear = Int8Linear(uneven(20, 32, seed=5), bias_X)
    together_NX = linear(x_ND)
    assert torch.equal(together_NX, torch.cat([linear(row_1D) for row_1D in x_ND.split(1)]))
    assert torch.equal(together_NX[7], bias_X)


def quantized_copy(model: Transformer) -> Transformer:
    copy = deepcopy(model).float()
    quantize(copy)
    return copy.eval()


def test_a_quantized_model_computes_nearly_the_same() -> None:
    """No layer with float weights is left but norms and the embedding, and logits keep their values but for 2 %."""
    model = tiny(3, scale=1.0).eval()
    copy = quantized_copy(model)
    assert not any(isinstance(module, nn.Linear) for module in copy.modules())
    assert sum(isinstance(module, Int8Linear) for module in copy.modules()) == 2 * (2 + 2) + 2 * (2 + 3 + 2) + 1
    assert torch.equal(copy.embedding.weight, model.embedding.weight.float())
    source_BS, inputs_BT = batch(sources(8)), batch(sources(8, longest=5))
    with torch.no_grad():
        exact, found = (one.logits(hidden_of(one, source_BS, inputs_BT)).double() for one in (model, copy))
    assert exact.shape == found.shape
    assert 0 < (exact - found).norm() / exact.norm() < 0.02


def test_search_is_plain_search_of_the_quantized_model() -> None:
    """Batched, cached and pruned, the search finds what a plain one finds, a sentence at a time, in the same model.

    Cached and uncached attention differ in the last bits, which may turn a number into its neighbour among integers.
    """
    beam, n_best = 4, 3
    for seed in range(2):
        model, sentences = quantized_copy(tiny(seed)), sources(6)
        found = beam_search(
            IncrementalDecoder(model), batch(sentences), beam_size=beam, max_extra_tokens=6, n_best=n_best
        )
        for source, ours in zip(sentences, found, strict=True):
            theirs = plain_search(model, source, beam, 0.6, 6, n_best)
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=0.02)
