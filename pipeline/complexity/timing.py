"""Measures the times of layers, forward and backward: in rounds, so that a disturbance does not hit one layer alone.

timers = [Timer(layer, x_BLD, least_s=0.002), ...]
rounds = [[timer.time() for timer in timers] for _ in range(9)]
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class PassTimes(NamedTuple):
    """Seconds of one pass, as the mean over repetitions right after each other."""

    forward_s: float
    backward_s: float


class Timer:
    """Times passes of a layer over an input. The first pass, made at once, says how many make up a measurement."""

    def __init__(self, layer: nn.Module, x_BLD: Tensor, least_s: float) -> None:
        self._layer, self._x_BLD = layer, x_BLD.detach().requires_grad_()
        self._ones_BLD = torch.ones_like(x_BLD)
        self._wait: Callable[[], None] = torch.cuda.synchronize if x_BLD.is_cuda else lambda: None
        first = self._once()
        self._repetitions = max(1, round(least_s / (first.forward_s + first.backward_s)))

    def time(self) -> PassTimes:
        """Returns the mean times of a few passes, as many as take `least_s`."""
        passes = [self._once() for _ in range(self._repetitions)]
        return PassTimes(*(sum(times) / len(passes) for times in zip(*passes, strict=True)))

    def _once(self) -> PassTimes:
        self._wait()
        started_s = time.perf_counter()
        y_BLD = self._layer(self._x_BLD)
        self._wait()
        between_s = time.perf_counter()
        y_BLD.backward(self._ones_BLD)
        self._wait()
        times = PassTimes(between_s - started_s, time.perf_counter() - between_s)
        # Every layer is kept for all rounds; its gradients need not be.
        self._layer.zero_grad(set_to_none=True)
        self._x_BLD.grad = None
        return times
