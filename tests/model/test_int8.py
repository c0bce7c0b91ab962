"""Products in int8 against exact ones, and a quantized model against the one that it was made from."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from model.int8 import Int8Linear, is_available, quantize
from model.transformer import Transformer
from tests.model.test_search import batch, sources, tiny
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
