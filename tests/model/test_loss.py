import pytest
import torch
from torch.nn import functional as F

from model import loss as chunks
from model.config import PAD_ID
from model.loss import smoothed_cross_entropy


@pytest.mark.gpu
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("rows", [3, 1024])
def test_loss_and_gradient_of_torch(monkeypatch: pytest.MonkeyPatch, smoothing: float, rows: int, device: str) -> None:
    monkeypatch.setitem(chunks.LOSS_ROWS, device, rows)
    torch.manual_seed(0)
    targets_N = torch.tensor([4, 5, PAD_ID, 8, 6, 4, PAD_ID, 1, 3, 8, PAD_ID], device=device)
    hidden_ND = torch.randn(11, 5, dtype=torch.float64, device=device, requires_grad=True)
    weight_VD = torch.randn(9, 5, dtype=torch.float64, device=device, requires_grad=True)

    logits_NV = hidden_ND @ weight_VD.T
    expected = tuple(
        F.cross_entropy(logits_NV, targets_N, ignore_index=PAD_ID, reduction="sum", label_smoothing=each)
        for each in (smoothing, 0.0)
    )
    expected_grads = torch.autograd.grad(2.5 * expected[0], (hidden_ND, weight_VD))

    sums = smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, smoothing)
    grads = torch.autograd.grad(2.5 * sums[0], (hidden_ND, weight_VD))
    torch.testing.assert_close(sums, expected, rtol=1e-12, atol=1e-12)

    gradient_VD = torch.ones_like(weight_VD)
    loss, _ = smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, smoothing, gradient_VD)
    given = torch.autograd.grad(2.5 * loss, (hidden_ND, weight_VD), allow_unused=True)
    assert given[1] is None
    torch.testing.assert_close((given[0], 2.5 * (gradient_VD - 1)), expected_grads, rtol=1e-12, atol=1e-12)
    n_correct = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad():
        smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, smoothing, gradient_VD, n_correct)
        probable_N = (hidden_ND @ weight_VD.T).argmax(-1)
        kept_N = targets_N != PAD_ID
        assert n_correct == (probable_N == targets_N)[kept_N].sum()
        n_correct.zero_()
        smoothed_cross_entropy(hidden_ND, weight_VD, probable_N.where(kept_N, PAD_ID), smoothing, n_correct=n_correct)
        assert n_correct == kept_N.sum() == 8
    torch.testing.assert_close(2.5 * (gradient_VD - 1), expected_grads[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads, expected_grads, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_lower_precision_stays_close_to_float64(dtype: torch.dtype, tolerance: float, device: str) -> None:
    torch.manual_seed(2)
    exact = [torch.randn(300, 64).to(dtype).double(), (torch.randn(700, 64) / 8).to(dtype).double()]
    targets_N = torch.randint(0, 700, (300,))
    given = [tensor.to(device, dtype).requires_grad_() for tensor in exact]
    added_VD = torch.zeros(700, 64, device=device)
    results = list[list[torch.Tensor | None]]()
    for hidden_ND, weight_VD in (given, [tensor.requires_grad_() for tensor in exact]):
        targets_N = targets_N.to(hidden_ND.device)
        loss, nll = smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, 0.1)
        loss.backward()
        if not results:
            smoothed_cross_entropy(hidden_ND, weight_VD, targets_N, 0.1, added_VD)
        results.append([loss, nll, hidden_ND.grad, weight_VD.grad, weight_VD.grad if results else added_VD])
    for ours, expected in zip(*results, strict=True):
        assert (ours.detach().cpu().double() - expected.detach()).norm() < tolerance * expected.detach().norm()
