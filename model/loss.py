"""Label-smoothed cross entropy (paper §5.4) as sums over target tokens, never means.

Shapes: N rows (target positions), D = d_model, V vocabulary, C rows of one chunk.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.config import PAD_ID

CHUNK_ROWS = 1024


class LossSums(NamedTuple):
    """Sums over the target tokens that are not padding; divide by `n_tokens` once it is summed over all workers."""

    loss: Tensor
    """Label-smoothed cross entropy in nats: what is minimised."""
    nll: Tensor
    """Plain negative log-likelihood in nats: exp(nll / n_tokens) is the perplexity."""
    n_tokens: Tensor


def smoothed_cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float) -> LossSums:
    """Cross entropy against q(k) = (1 - ε)·[k = target] + ε/V (Szegedy et al. 2016, the source §5.4 cites).

    The logits `hidden_ND @ weight_VD.T` are made, used and dropped a chunk of rows at a time, and the gradients are
    formed in the same pass, so the float32 logits of the batch are never held. Rows whose target is PAD_ID count for
    nothing. The gradient of `loss` alone is defined; `nll` is for reporting.
    """
    kept_N = targets_N != PAD_ID
    hidden_ND, targets_N = hidden_ND[kept_N], targets_N[kept_N]
    loss, nll = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, targets_N, smoothing)
    return LossSums(loss, nll, torch.tensor(targets_N.shape[0], device=targets_N.device))


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        vocabulary_size = weight_VD.shape[0]
        wants_gradient = any(ctx.needs_input_grad)
        accumulator = torch.promote_types(hidden_ND.dtype, torch.float32)
        loss = torch.zeros((), dtype=accumulator, device=hidden_ND.device)
        nll = torch.zeros_like(loss)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=accumulator) if wants_gradient else None
        for first in range(0, hidden_ND.shape[0], CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            hidden_CD, targets_C1 = hidden_ND[rows], targets_N[rows, None]
            log_p_CV = torch.log_softmax((hidden_CD @ weight_VD.T).to(accumulator), dim=-1)
            chunk_nll = -log_p_CV.gather(1, targets_C1).sum()
            nll += chunk_nll
            loss += (1 - smoothing) * chunk_nll
            if smoothing:
                loss -= smoothing / vocabulary_size * log_p_CV.sum()
            if grad_weight_VD is not None:
                # d loss / d logits = p - q
                grad_CV = log_p_CV.exp_().sub_(smoothing / vocabulary_size)
                grad_CV.scatter_add_(1, targets_C1, grad_CV.new_full(targets_C1.shape, smoothing - 1))
                grad_CV = grad_CV.to(hidden_ND.dtype)
                grad_hidden_ND[rows] = grad_CV @ weight_VD
                grad_weight_VD += grad_CV.T @ hidden_CD
        if grad_weight_VD is not None:
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grad_hidden_ND * grad_loss, grad_weight_VD * grad_loss, None, None
