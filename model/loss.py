"""Label-smoothed cross entropy (paper §5.4) as sums over target tokens, never means.

Shapes: N rows (target positions), D = d_model, V vocabulary, C rows of one chunk.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.config import PAD_ID

CHUNK_ROWS = {"cpu": 1024, "cuda": 8192}
"""Rows whose logits are held at a time."""


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
    formed in the same pass: no batch of logits is held, and the logits are read and written once, by the softmax. A
    third of the time of log_softmax in float32 and its gradient, at bfloat16 and 8 000 pieces. Rows whose target is
    PAD_ID count for nothing. The gradient of `loss` alone is defined; `nll` is for reporting, at most 87 a token (where
    float32 ends).
    """
    loss, nll, n_tokens = _ChunkedCrossEntropy.apply(hidden_ND, weight_VD, targets_N, smoothing)
    return LossSums(loss, nll, n_tokens)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """With p the softmax of the logits z: nll = -log p[t], and log Σ exp z = z[t] + nll, so the smoothed part of the
    loss, ε·(log Σ exp z - mean z), needs but the mean logit, hidden · mean row of the weight.

    d loss / d z = p - q. Of q, the target's entry is put into p; ε/V, the same everywhere, is subtracted from the
    products as the outer product that it is.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        vocabulary_size, uniform = weight_VD.shape[0], smoothing / weight_VD.shape[0]
        accumulator = torch.promote_types(hidden_ND.dtype, torch.float32)
        weight_D = weight_VD.sum(0, dtype=accumulator)
        kept_N1 = (targets_N != PAD_ID)[:, None]
        loss = torch.zeros((), dtype=accumulator, device=hidden_ND.device)
        nll = torch.zeros_like(loss)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=accumulator) if any(ctx.needs_input_grad) else None
        n_rows = CHUNK_ROWS.get(hidden_ND.device.type, 1024)
        for first in range(0, hidden_ND.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            hidden_CD, targets_C1, kept_C1 = hidden_ND[rows], targets_N[rows, None], kept_N1[rows]
            logits_CV = hidden_CD @ weight_VD.T
            target_C1 = logits_CV.gather(1, targets_C1).to(accumulator)
            p_CV = torch.softmax(logits_CV, dim=-1, out=logits_CV)
            p_C1 = p_CV.gather(1, targets_C1).to(accumulator)
            nll_C1 = -p_C1.clamp_min(torch.finfo(torch.float32).tiny).log()
            mean_C1 = (hidden_CD.to(accumulator) @ weight_D)[:, None] / vocabulary_size
            loss_C1 = (1 - smoothing) * nll_C1 + smoothing * (target_C1 + nll_C1 - mean_C1)
            nll += nll_C1.where(kept_C1, 0).sum()
            loss += loss_C1.where(kept_C1, 0).sum()
            if grad_weight_VD is not None:
                p_CV.scatter_(1, targets_C1, (p_C1 - (1 - smoothing)).to(p_CV.dtype))
                grad_hidden_ND[rows] = (p_CV @ weight_VD - (uniform * weight_D).to(p_CV.dtype)) * kept_C1
                grad_weight_VD += p_CV.T @ (hidden_CD * kept_C1)
        if grad_weight_VD is not None:
            grad_weight_VD -= uniform * (hidden_ND * kept_N1).sum(0, dtype=accumulator)
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll, kept_N1.sum()

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grad_hidden_ND * grad_loss, grad_weight_VD * grad_loss, None, None
