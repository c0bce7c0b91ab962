"""A micro-batch's forward and backward pass as a CUDA graph: the host launches one graph instead of some 600 kernels.

    captured = Captured(compute, batch)     # records compute(batch)
    captured(other)                         # the same kernels on another batch of the same shapes

A graph reads and writes the addresses that it was recorded with, so a batch is copied into buffers that stay in place.
Random numbers follow `torch.manual_seed` as they do without a graph: a replay first sets the seed and offset that its
kernels read (`CUDAGeneratorState::replay_prologue` in torch's CUDAGeneratorImpl.cpp).
"""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from model.batch import Batch

WARM_UPS = 3
"""Passes before a recording, in which libraries choose algorithms and allocate; torch's documentation says three."""
TOLERANCE = 0.01
"""Largest difference of a recorded pass from a plain one, relative to its norm. Kernels that add in any order differ by
bfloat16's rounding, 0.4 % of an element; another batch or other dropout differ by tens of percent."""


class Buffers:
    """A batch on a device whose tensors stay in place while others of the same shapes are copied into them."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self._tensors: list[Tensor] = []
        self._device = device
        self.batch = batch.each(self._copied)

    def _copied(self, tensor: Tensor) -> Tensor:
        self._tensors.append(torch.empty_like(tensor, device=self._device).copy_(tensor))
        return self._tensors[-1]

    def fill(self, batch: Batch) -> None:
        """Copies a batch, from pinned memory without waiting. Raises ValueError if a shape differs."""
        tensors = iter(self._tensors)

        def fill_next(tensor: Tensor) -> Tensor:
            buffer = next(tensors)
            if buffer.shape != tensor.shape:  # a single element would fill the whole buffer
                raise ValueError(f"a batch has a tensor of {tuple(tensor.shape)}, not {tuple(buffer.shape)}")
            return buffer.copy_(tensor, non_blocking=True)

        batch.each(fill_next)


class Captured:
    """The graph of `compute`, a function of a batch; calling it computes another batch with the same kernels."""

    def __init__(self, compute: Callable[[Batch], None], batch: Batch) -> None:
        """Records `compute(batch)`, after running it a few times as it is. What else it reads must stay in place.

        Raises RuntimeError if the device or an operator cannot be recorded. Then nothing has changed, but torch may
        keep the memory of the recording: up to 2.13 it releases a graph's pool only if its recording has succeeded.
        """
        gc.collect()  # an autograd node in a cycle would hold the default stream, which torch does not record
        device = batch.targets_N.device
        self._buffers, self._graph = Buffers(batch, device), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        try:
            # Around `graph`, too, which leaves its stream the current one if a recording fails.
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    compute(self._buffers.batch)
                # Other threads may go on using the device: NCCL's asks for events all the time.
                with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
                    compute(self._buffers.batch)
        except Exception:
            # The generator may still believe that it is being recorded.
            generator = torch.cuda.default_generators[device.index]
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            raise
        finally:
            torch.cuda.current_stream(device).wait_stream(side)

    def __call__(self, batch: Batch) -> None:
        """Computes a batch of the same shapes, on the host or the device."""
        self._buffers.fill(batch)
        self._graph.replay()


def same(plain: Tensor, captured: Tensor) -> bool:
    """Whether two results agree up to rounding. Non-finite results never agree."""
    return bool((plain - captured).norm() <= TOLERANCE * plain.norm())
