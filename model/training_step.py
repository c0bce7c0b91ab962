"""One update of the weights (paper §5.3, §5.4): gradients of micro-batches summed, divided once, Adam.

    step = TrainingStep(Transformer(BASE), OptimizerConfig(), compute_dtype("cpu"))
    for source_BS, target_BT in micro_batches:
        sums = step.accumulate(source_BS, target_BT, seed)
    step.gradients()                     # all-reduce these between workers, sums as they are
    norm = step.apply(update=1, n_tokens=total)

Shapes: B batch, S source length, T target length (END_ID included).
"""

from copy import deepcopy

import torch
from torch import Tensor

from model.config import BEGIN_ID, OptimizerConfig
from model.loss import LossSums, smoothed_cross_entropy
from model.schedule import learning_rate
from model.transformer import Transformer


def shift_right(target_BT: Tensor) -> Tensor:
    """Decoder inputs: BEGIN_ID, then the target without its last column (§3.1)."""
    begin_B1 = torch.full_like(target_BT[:, :1], BEGIN_ID)
    return torch.cat((begin_B1, target_BT[:, :-1]), dim=1)


class TrainingStep:
    """Holds the float32 masters, their Adam state and, where `dtype` is lower, a shadow model that computes in it.

    `master` is what checkpoints save; `model` is what computes: the same module in float32. No method waits for the
    device.
    """

    def __init__(
        self, master: Transformer, config: OptimizerConfig, dtype: torch.dtype, compiled: bool = False
    ) -> None:
        self.master, self.config = master.float(), config
        self.model = master if dtype == torch.float32 else deepcopy(master).to(dtype)
        if compiled:
            # A layer at a time: all share the code of one. Sizes are symbols, so other batches compile nothing more.
            for layer in (*self.model.encoder, *self.model.decoder):
                layer.compile(dynamic=True)
        self._masters: list[Tensor] = list(self.master.parameters())
        self._shadows: list[Tensor] = list(self.model.parameters())
        self.adam = torch.optim.Adam(
            self._masters, lr=0.0, betas=(config.beta_1, config.beta_2), eps=config.epsilon, fused=True
        )
        self._broken = torch.zeros((), device=self._masters[0].device)

    def refresh(self) -> None:
        """Copies the masters into the shadow; call after loading weights."""
        if self.model is not self.master:
            with torch.no_grad():
                torch._foreach_copy_(self._shadows, self._masters)

    def loss(self, source_BS: Tensor, target_BT: Tensor) -> LossSums:
        """Forward pass of one batch. Token ids, PAD_ID where padding; `target_BT` ends each sentence with END_ID."""
        hidden_BTD = self.model(source_BS, shift_right(target_BT))
        smoothing = self.config.label_smoothing
        return smoothed_cross_entropy(
            hidden_BTD.flatten(0, 1), self.model.embedding.weight, target_BT.flatten(), smoothing
        )

    def accumulate(self, source_BS: Tensor, target_BT: Tensor, seed: int) -> LossSums:
        """Forward and backward of one micro-batch, added to the gradients. `seed` alone decides its dropout."""
        torch.manual_seed(seed)
        self.model.train()
        sums = self.loss(source_BS, target_BT)
        sums.loss.backward()
        if self.model is not self.master:
            # bfloat16 has 8 bits of mantissa: micro-batches are summed in float32.
            for master, shadow in zip(self._masters, self._shadows, strict=True):
                if shadow.grad is not None:
                    master.grad = shadow.grad.float() if master.grad is None else master.grad.add_(shadow.grad)
                    shadow.grad = None
        return LossSums(sums.loss.detach(), sums.nll, sums.n_tokens)

    def gradients(self) -> list[Tensor]:
        """The summed gradients, float32, in the order of the parameters: the tensors themselves, to reduce in place."""
        gradients = []
        for parameter in self._masters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        return gradients

    def discard(self) -> None:
        """Forgets what has been summed since the last update. The next gradient is taken, not added to zeros."""
        for parameter in self._masters:
            parameter.grad = None

    def learning_rate(self, update: int) -> float:
        """The learning rate of Adam's step number `update`, counted from 1 (§5.3)."""
        config = self.config
        return learning_rate(update, self.master.config.d_model, config.warmup_steps, config.learning_rate_scale)

    def apply(self, update: int, n_tokens: int) -> Tensor:
        """Divides the gradients by the global number of target tokens and takes Adam's step number `update` (from 1).

        Returns the norm of the divided gradient. Where that is not finite, neither this call nor a later one changes a
        weight: the caller may look at the norms whenever it likes. What has been summed is forgotten.
        """
        norm = torch.nn.utils.get_total_norm(self.gradients()) / n_tokens
        self._broken = torch.maximum(self._broken, (~norm.isfinite()).float())
        # Adam's kernel itself divides by one of these and does nothing where the other is 1.
        divisor = torch.full_like(norm, n_tokens)
        self.adam.grad_scale, self.adam.found_inf = divisor, self._broken  # type: ignore[attr-defined]
        for group in self.adam.param_groups:
            group["lr"] = self.learning_rate(update)
        self.adam.step()
        self.discard()
        self.refresh()
        return norm
