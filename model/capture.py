"""A forward and backward pass as a CUDA graph: one launch instead of about 600 kernels.

    captured = Captured(compute, batch)     # captures compute(batch)
    captured(other)                         # replays the kernels on another batch of the same shapes

A graph reads and writes fixed addresses, so each batch is copied into static buffers.
"""

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from model.batch import Batch

WARM_UPS = 3
"""Passes before capture, in which libraries choose algorithms and allocate; the number that torch recommends."""
TOLERANCE = 0.01
"""Largest relative difference (by norm) between captured and eager results. Non-deterministic summation order
changes them by bfloat16 rounding, 0.4% of an element; a wrong batch or dropout mask by tens of percent."""


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
