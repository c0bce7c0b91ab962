"""One update of the weights (paper §5.3, §5.4): sum the micro-batches' gradients, divide once, take a step of Adam.

    step = TrainingStep(Transformer(BASE), OptimizerConfig(), compute_dtype("cpu"))
    for source_BS, target_BT in micro_batches:
        step.accumulate(Batch.in_grid(source_BS, target_BT, step.dtype), seed)
    all_reduce(step.sums)                                 # with several workers
    loss, nll, norm = step.apply(update=1, n_tokens=total)

Shapes: P parameters; N rows of a batch (`model.batch`).
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor

from model.batch import Batch
from model.capture import Captured, same
from model.config import OptimizerConfig
from model.loss import smoothed_cross_entropy
from model.optimizer import Adam, learning_rate
from model.parameters import flatten, views
from model.transformer import Transformer

NORM_PARAMETERS = 1 << 20
"""Parameters whose squares are summed at a time."""


class TrainingStep:
    """Holds the float32 master weights, their Adam state and, if `dtype` is lower, a shadow model of that type.

    Weights, gradients and moments are one vector each. Checkpoints save `master`; `model` computes, and is `master`
    itself in float32. Only `capture` waits for the device.
    """

    def __init__(
        self,
        master: Transformer,
        config: OptimizerConfig,
        dtype: torch.dtype,
        compiled: bool = False,
        packed: bool = False,
    ) -> None:
        """`packed`: every batch will be packed to the same size, so shapes are compiled as constants."""
        self.master, self.config, self.dtype, self.compiled = master.float(), config, dtype, compiled
        self.model = master if dtype == torch.float32 else deepcopy(master).to(dtype)
        self._masters_P = flatten(self.master)
        self._shadows_P = self._masters_P if self.model is self.master else flatten(self.model)
        if compiled:
            # Of packed batches, all shapes are the same; others must not compile anything anew.
            self.model.compile(fullgraph=True, dynamic=not packed)
        n_parameters = len(self._masters_P)
        self.sums = torch.zeros(n_parameters + 2, device=self._masters_P.device)
        """The gradient of all parameters, then loss and nll, each summed over target tokens; reduced together."""
        self.gradient_P, self.losses = self.sums[:n_parameters], self.sums[n_parameters:]
        self._gradients = views(self.gradient_P, self.master)
        self._parameters = list(self.model.parameters())
        if self.model is self.master:  # autograd adds in place
            for gradient, parameter in zip(self._gradients, self._parameters, strict=True):
                parameter.grad = gradient
        self.adam = Adam(self._masters_P, config)
        self._captured: Captured | None = None
        device = self._masters_P.device
        # What torch.manual_seed sets, among all devices' generators: it formats a stack trace each time.
        on_gpu = device.type == "cuda"
        self._generator = torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator
        # Adam's kernel on CUDA reads a rate in float32, that on CPUs one in float64.
        self._rate = torch.zeros((), device=device, dtype=torch.float64 if device.type == "cpu" else torch.float32)
        self._n_tokens, self._broken = torch.zeros((2,), device=device)

    def refresh(self) -> None:
        """Copies the master weights into the shadow; call it after loading weights."""
        if self.model is not self.master:
            with torch.no_grad():
                self._shadows_P.copy_(self._masters_P)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Runs the forward pass: loss and nll (`model.loss`)."""
        hidden_ND = self.model(batch.source, batch.inputs)
        return smoothed_cross_entropy(
            hidden_ND, self.model.embedding.weight, batch.targets_N, self.config.label_smoothing
        )

    def accumulate(self, batch: Batch, seed: int) -> None:
        """Adds gradient, loss and nll of a micro-batch, on any device. `seed` alone determines its dropout masks."""
        self._generator.manual_seed(seed)
        if self._captured:
            self._captured(batch)
            return
        if not self.model.training:  # it visits every module
            self.model.train()
        self._add(batch.to(self.sums.device))

    @property
    def captured(self) -> bool:
        """Whether micro-batches are computed by a CUDA graph."""
        return self._captured is not None

    def capture(self, batches: Sequence[Batch]) -> None:
        """Records a CUDA graph that computes all later micro-batches, of the same shapes as these packed ones.

        It is used only if it computes the losses and gradients of these batches as the kernels do without it. Raises
        RuntimeError if not, or if nothing can be recorded; then the step goes on without. The sums are zero afterwards.
        """
        try:
            self.model.train()
            captured = Captured(self._add, batches[0].to(self.sums.device), self.model)
            for seed, batch in enumerate(batches):
                results = []
                for compute in (self._add, captured):
                    self.discard()
                    self._generator.manual_seed(seed)
                    compute(batch.to(self.sums.device))
                    results.append((self.losses.clone(), self.gradient_P.clone()))
                if not all(same(*pair) for pair in zip(*results, strict=True)):
                    raise RuntimeError("a CUDA graph gives another loss or gradient than its kernels one by one")
            self._captured = captured
        finally:
            self.discard()

    def _add(self, batch: Batch) -> None:
        loss, nll = self.loss(batch)
        loss.backward()
        self.losses.add_(torch.stack((loss.detach(), nll)))
        if self.model is not self.master:
            self._add_lower_gradients()

    def _add_lower_gradients(self) -> None:
        """Adds the gradients of the lower type to their sum in float32, as bfloat16 has only 8 bits of mantissa."""
        lower = [cast("Tensor", parameter.grad) for parameter in self._parameters]
        if self.gradient_P.device.type == "cpu":  # which starts an operation for nothing, but copies slowly
            for gradient, added in zip(self._gradients, lower, strict=True):
                gradient.add_(added)
        else:
            self.gradient_P.add_(torch.cat([gradient.flatten() for gradient in lower]))
        for parameter in self._parameters:
            parameter.grad = None

    def discard(self) -> None:
        """Sets the sums to zero."""
        self.sums.zero_()

    def learning_rate(self, update: int) -> float:
        """Returns the learning rate of update number `update`, counted from 1 (§5.3)."""
        config = self.config
        return learning_rate(update, self.master.config.d_model, config.warmup_steps, config.learning_rate_scale)

    def apply(self, update: int, n_tokens: int) -> Tensor:
        """Divides the gradients by the global number of target tokens and takes step `update` of Adam, from 1.

        Returns, without waiting for the device, three numbers: the sums of loss and nll, and the norm of the divided
        gradient. If the norm is not finite, neither this call nor any later one changes a weight, so the caller may
        check the norms at its convenience. The sums are zero afterwards.
        """
        # In parts, because one long sum of float32 squares is 0.5 % too small for the base model on CPUs.
        norm = torch.nn.utils.get_total_norm(self.gradient_P.split(NORM_PARAMETERS)) / self._n_tokens.fill_(n_tokens)
        torch.maximum(self._broken, (~norm.isfinite()).float(), out=self._broken)
        self._rate.fill_(self.learning_rate(update))
        self.adam.step(self.gradient_P, self._rate, self._n_tokens, self._broken)
        results = torch.cat((self.losses, norm[None]))
        self.discard()
        self.refresh()
        return results
