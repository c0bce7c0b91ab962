"""Label smoothing is compared with the distribution written out, across chunk borders too."""

import pytest
import torch

from model import loss
from model.config import PAD_ID
from model.loss import smoothed_cross_entropy


@pytest.mark.gpu
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("chunk_rows", [3, 1024])
def test_value_and_gradient_of_the_explicit_distribution(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, chunk_rows: int, device: str
) -> None:
    """Loss and gradients are those of -Σ q log p, q = (1 - ε)·[k = target] + ε/V, over all rows but padding."""
    monkeypatch.setitem(loss.CHUNK_ROWS, device, chunk_rows)
    torch.manual_seed(0)
    targets_N = torch.tensor([4, 5, PAD_ID, 8, 6, 4, PAD_ID, 1, 3, 8, PAD_ID], device=device)
    hidden_ND = torch.randn(11, 5, dtype=torch.float64, device=device, requires_grad=True)
    weight_VD = torch.randn(9, 5, dtype=torch.float64, device=device, requires_grad=True)

    log_p_NV = torch.log_softmax(hidden_ND @ weight_VD.T, dim=-1)[targets_N != PAD_ID]
    real_N = targets_N[targets_N != PAD_ID]
    q_NV = (1 - smoothing) * torch.nn.functional.one_hot(real_N, 9).double() + smoothing / 9
    expected = -(q_NV * log_p_NV).sum()
    expected_grads = torch.autograd.grad(2.5 * expected, (hidden_ND, weight_VD))

    sums = smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, smoothing)
    grads = torch.autograd.grad(2.5 * sums.loss, (hidden_ND, weight_VD))
    torch.testing.assert_close(sums.loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sums.nll, -log_p_NV.gather(1, real_N[:, None]).sum(), rtol=1e-12, atol=1e-12)
    assert sums.n_tokens == 8
    torch.testing.assert_close(grads, expected_grads, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_lower_precision_stays_close_to_float64(dtype: torch.dtype, tolerance: float, device: str) -> None:
    """Loss, NLL and both gradients are those of float64 arithmetic on the same rounded numbers, to the type's error."""
    torch.manual_seed(2)
    exact = [torch.randn(300, 64).to(dtype).double(), (torch.randn(700, 64) / 8).to(dtype).double()]
    targets_N = torch.randint(0, 700, (300,))
    given = [tensor.to(device, dtype).requires_grad_() for tensor in exact]
    results = []
    for hidden_ND, weight_VD in (given, [tensor.requires_grad_() for tensor in exact]):
        sums = smoothed_cross_entropy(hidden_ND, weight_VD, targets_N.to(hidden_ND.device), 0.1)
        sums.loss.backward()
        results.append([sums.loss, sums.nll, hidden_ND.grad, weight_VD.grad])
    for ours, expected in zip(*results, strict=True):
        assert (ours.detach().cpu().double() - expected.detach()).norm() < tolerance * expected.detach().norm()
