"""One update of the weights (paper §5.3, §5.4): sum the gradients of passes, divide once, take an Adam step.

    step = TrainingStep(Transformer(BASE), OptimizerConfig(), compute_dtype("cpu"))
    for source_BS, target_BT, pairs_B in passes:
        step.accumulate(Batch.padded(source_BS, target_BT, step.dtype).keyed(pair_keys(seed, update, pairs_B)))
    all_reduce(step.sums)                                 # with several workers
    loss, nll, norm = step.apply(update=1, n_tokens=total)

On a GPU, a packed pass can be launched as one CUDA graph instead of about 600 kernels (`TrainingStep.capture`).
Weights, gradients and moments are one flat vector each, so an Adam step or a cast is one operation instead of eighty.

Shapes: P parameters.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import adam as torch_adam

from model.batch import Batch
from model.config import OptimizerConfig
from model.loss import smoothed_cross_entropy
from model.transformer import EncoderDecoder, Transformer

NORM_PARAMETERS = 1 << 20
"""Parameters whose squares are summed at a time on a CPU."""
WARM_UPS = 3
"""Passes before capture, in which libraries choose algorithms and allocate; the number that torch recommends."""
TOLERANCE = 0.01
"""Largest relative difference (by norm) between captured and eager results. Non-deterministic summation order
changes them by bfloat16 rounding, 0.4% of an element; a wrong batch or dropout mask by tens of percent."""


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Returns scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3; `scale` is 1 in the paper.

    Raises ValueError if `step` is below 1.
    """
    if step < 1:
        raise ValueError(f"step is {step}; the schedule counts from 1")
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


class Adam:
    """Adam's moments for a parameter vector, and its steps (Kingma and Ba 2015).

    Calls the same fused kernel as `torch.optim.Adam`, whose construction imports torch's compiler: 1.5 s and 800
    modules in every training process.
    """

    def __init__(self, weights_P: Tensor, config: OptimizerConfig) -> None:
        self.weights_P, self.config = weights_P, config
        self.mean_P, self.square_P = torch.zeros_like(weights_P), torch.zeros_like(weights_P)
        self.n_steps = torch.zeros((), device=weights_P.device)
        """On the device, so that no step synchronises."""

    @torch.no_grad()
    def step(self, gradient_P: Tensor, rate: Tensor, grad_scale: Tensor, found_inf: Tensor) -> None:
        """Takes one step on `gradient_P / grad_scale`, or none if `found_inf` is 1. May overwrite the gradient.

        The other arguments are float32 scalars on the device; on CPUs the rate is float64.
        """
        torch_adam.adam(
            [self.weights_P],
            [gradient_P],
            [self.mean_P],
            [self.square_P],
            [],
            [self.n_steps],
            fused=True,
            grad_scale=grad_scale,
            found_inf=found_inf,
            amsgrad=False,
            beta1=self.config.beta_1,
            beta2=self.config.beta_2,
            lr=rate,
            weight_decay=0.0,
            eps=self.config.epsilon,
            maximize=False,
        )


def flatten(module: nn.Module) -> Tensor:
    """Replaces a module's parameters by views of one flat vector, in order; returns the vector."""
    parameters = list(module.parameters())
    with torch.no_grad():
        weights_P = torch.cat([parameter.flatten() for parameter in parameters])
    for parameter, view in zip(parameters, views(weights_P, module), strict=True):
        parameter.data = view
    return weights_P


def views(values_P: Tensor, module: nn.Module) -> list[Tensor]:
    """Splits a flat vector into views shaped like a module's parameters."""
    parameters = list(module.parameters())
    parts = values_P.split([parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


class Buffers:
    """Static device buffers for batches of equal shapes."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._tensors: list[Tensor] = []
        self._device = device
        self.batch = batch.map(self._copied)

    def _copied(self, tensor: Tensor) -> Tensor:
        self._tensors.append(torch.empty_like(tensor, device=self._device).copy_(tensor))
        return self._tensors[-1]

    def fill(self, batch: Batch) -> None:
        """Copies a batch in; asynchronous from pinned memory. Raises ValueError if a shape differs."""
        tensors = iter(self._tensors)

        def fill_next(tensor: Tensor) -> Tensor:
            buffer = next(tensors)
            if buffer.shape != tensor.shape:  # copy_ would broadcast
                raise ValueError(f"the batch has a tensor of shape {tuple(tensor.shape)}, not {tuple(buffer.shape)}")
            return buffer.copy_(tensor, non_blocking=True)

        batch.map(fill_next)


class Captured:
    """The CUDA graph of `compute`, a function of a batch. Calling it replays the kernels on another batch."""

    def __init__(self, compute: Callable[[Batch], None], batch: Batch) -> None:
        """Runs `compute(batch)` eagerly a few times, then captures it. All else that it reads must stay in place.

        Raises RuntimeError if the device or an operator does not support capture. Nothing has changed then, except that
        torch (up to 2.13) may keep the memory of the failed capture's pool.
        """
        gc.collect()  # an autograd node in a cycle would hold the default stream, which cannot be captured
        device = batch.targets_N.device
        self._buffers, self._graph = Buffers(batch, device), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        try:
            # Also around `graph`, which leaves its own stream current if the capture fails.
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    compute(self._buffers.batch)
                # Other threads may keep using the device: NCCL's watchdog queries events all the time.
                with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                    compute(self._buffers.batch)
        except Exception:
            # The generator may still be in capture mode.
            generator = torch.cuda.default_generators[device.index]
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            raise
        finally:
            torch.cuda.current_stream(device).wait_stream(side)

    def __call__(self, batch: Batch) -> None:
        """Computes a batch of the same shapes, from the host or the device."""
        self._buffers.fill(batch)
        self._graph.replay()


def results_agree(plain: Tensor, captured: Tensor) -> bool:
    """Whether two results agree up to rounding. Non-finite results never agree."""
    return bool((plain - captured).norm() <= TOLERANCE * plain.norm())


class TrainingStep:
    """Holds the float32 master weights, their Adam state and, in a lower dtype, a compute copy of that dtype.

    Checkpoints save `master`; `model` is the compute copy, or `master` itself in float32. Only `capture` synchronises
    with the device.
    """

    def __init__(
        self,
        master: EncoderDecoder,
        config: OptimizerConfig,
        dtype: torch.dtype,
        compiled: bool = False,
        packed: bool = False,
    ) -> None:
        """`packed`: every batch will be packed to the same shape, so compile with static shapes."""
        self.master, self.config, self.dtype, self.compiled = master.float(), config, dtype, compiled
        self.model = master if dtype == torch.float32 else deepcopy(master).to(dtype)
        self._masters_P = flatten(self.master)
        self._copies_P = self._masters_P if self.model is self.master else flatten(self.model)
        if compiled and isinstance(self.model, Transformer):
            # Of as many shapes as a process ever trains; dynamo's limit of 8 would fail the ninth.
            torch._dynamo.config.recompile_limit = 256
            # One compiled graph for all encoder layers and one for the decoder's. Look-ups and the loss stay eager.
            for layer in (*self.model.encoder, *self.model.decoder):
                layer.compile(fullgraph=True, dynamic=not packed)
        n_parameters = len(self._masters_P)
        self.sums = torch.zeros(n_parameters + 2, device=self._masters_P.device)
        """The flat gradient, then loss and nll, each summed over target tokens; all-reduced together."""
        self.gradient_P, self.losses = self.sums[:n_parameters], self.sums[n_parameters:]
        self._gradients = views(self.gradient_P, self.master)
        names = [name for name, _ in self.master.named_parameters()]
        self._embedding_gradient_VD = self._gradients[names.index("embedding.weight")]
        self._parameters = list(self.model.parameters())
        if self.model is self.master:  # autograd accumulates in place
            for gradient, parameter in zip(self._gradients, self._parameters, strict=True):
                parameter.grad = gradient
        self.adam = Adam(self._masters_P, config)
        self.captured: Captured | None = None
        """The CUDA graph of a pass, if it is used."""
        device = self._masters_P.device
        # Adam's kernel takes a float32 rate on CUDA, a float64 one on CPUs.
        self._rate = torch.zeros((), device=device, dtype=torch.float64 if device.type == "cpu" else torch.float32)
        self._n_tokens, self._found_inf = torch.zeros((2,), device=device)
        self._copied: torch.cuda.Event | None = None

    def copy_weights(self) -> None:
        """Copies the master weights into the compute copy; call it after loading weights."""
        if self.model is not self.master:
            with torch.no_grad():
                self._copies_P.copy_(self._masters_P)

    def copy_out(self, copies: Sequence[tuple[Tensor, Tensor]]) -> Callable[[], None]:
        """Copies pairs (to, from) to the host, on GPUs beside the next passes; returns a wait for the end."""
        device = self._masters_P.device
        if device.type == "cpu":
            for to, values in copies:
                to.copy_(values)
            return lambda: None
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for to, values in copies:
                to.copy_(values, non_blocking=True)
        self._copied = side.record_event()
        return self._copied.synchronize

    def uncompiled(self) -> AbstractContextManager[object]:
        """In its body, layers run eagerly: for batches of other shapes, as in validation."""
        return torch.compiler.set_stance("force_eager") if self.compiled else nullcontext()

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns loss and nll (`model.loss`). With autograd on, also adds the vocabulary's gradient to `sums`."""
        hidden_ND, weight_VD = self.model(batch.source, batch.inputs), self.model.embedding.weight
        return smoothed_cross_entropy(
            hidden_ND, weight_VD, batch.targets_N, self.config.label_smoothing, self._embedding_gradient_VD
        )

    def accumulate(self, batch: Batch) -> None:
        """Adds a batch's gradient, loss and nll."""
        if self.captured:
            self.captured(batch)
            return
        if not self.model.training:  # train() visits every module
            self.model.train()
        self._add(batch.to(self.sums.device))

    def capture(self, batches: Sequence[Batch]) -> None:
        """Captures a CUDA graph for all later batches; these packed batches have their shapes.

        Raises RuntimeError if capture fails or the graph's losses and gradients differ from eager ones; training then
        continues eagerly. The sums are zero afterwards.
        """
        try:
            self.model.train()
            # Before the graph, which keeps the memory of a pass; on the host, to leave it room.
            eager = [self._results(self._add, batch) for batch in batches]
            captured = Captured(self._add, batches[0].to(self.sums.device))
            for batch, plain in zip(batches, eager, strict=True):
                found = self._results(captured, batch)
                parts = [results.tensor_split([len(self.gradient_P)]) for results in (plain, found)]
                if not all(results_agree(*pair) for pair in zip(*parts, strict=True)):
                    raise RuntimeError("the CUDA graph computes another loss or gradient than its kernels run eagerly")
            self.captured = captured
        finally:
            self.discard()

    def _results(self, compute: Callable[[Batch], None], batch: Batch) -> Tensor:
        """Returns a batch's sums, on the host."""
        self.discard()
        compute(batch.to(self.sums.device))
        return self.sums.to("cpu", copy=True)

    def _add(self, batch: Batch) -> None:
        loss, nll = self.loss(batch)
        loss.backward()
        self.losses.add_(torch.stack((loss.detach(), nll)))
        if self.model is not self.master:
            self._add_lower_gradients()

    def _add_lower_gradients(self) -> None:
        """Adds the low-precision gradients to their float32 sum, since bfloat16 has only 8 bits of mantissa."""
        lower = [cast("Tensor", parameter.grad) for parameter in self._parameters]
        if self.gradient_P.device.type == "cpu":  # launching an operation is free, and a copy slow
            for gradient, added in zip(self._gradients, lower, strict=True):
                gradient.add_(added)
        else:
            self.gradient_P.add_(torch.cat([gradient.flatten() for gradient in lower]))
        self._drop_lower_gradients()

    def _drop_lower_gradients(self) -> None:
        if self.model is not self.master:
            for parameter in self._parameters:
                parameter.grad = None

    def discard(self) -> None:
        """Sets the sums to zero, and drops gradients that a failed pass or capture has left."""
        self.sums.zero_()
        self._drop_lower_gradients()

    def learning_rate(self, update: int) -> float:
        """Returns the learning rate of update number `update`, counted from 1 (§5.3)."""
        config = self.config
        return learning_rate(update, self.master.config.d_model, config.warmup_steps, config.learning_rate_scale)

    def _norm(self) -> Tensor:
        if self.gradient_P.device.type == "cpu":  # a single sum of float32 squares is 0.5% too small for base
            return torch.nn.utils.get_total_norm(self.gradient_P.split(NORM_PARAMETERS))
        return torch.linalg.vector_norm(self.gradient_P)

    def apply(self, update: int, n_tokens: int) -> Tensor:
        """Divides the gradients by the global number of target tokens and takes Adam step `update`, from 1.

        Returns, without synchronising, the sums of loss and nll and the norm of the divided gradient. If the norm is
        not finite, neither this nor any later call changes a weight, so the caller may check it later. The sums are
        zero afterwards.
        """
        norm = self._norm() / self._n_tokens.fill_(n_tokens)
        torch.maximum(self._found_inf, (~norm.isfinite()).float(), out=self._found_inf)
        self._rate.fill_(self.learning_rate(update))
        if self._copied:
            torch.cuda.current_stream(self.sums.device).wait_event(self._copied)
            self._copied = None
        self.adam.step(self.gradient_P, self._rate, self._n_tokens, self._found_inf)
        results = torch.cat((self.losses, norm[None]))
        self.discard()
        self.copy_weights()
        return results
