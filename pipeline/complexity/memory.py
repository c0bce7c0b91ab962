"""Measures the peak memory of a forward and backward pass: bytes of tensors, as torch's allocator hands them out.

    peak_bytes(layer, x_BLD)

What exists before the pass, the input and the weights, does not count; their gradients do. On a GPU the allocator
itself keeps the peak. On a CPU the profiler records every allocation, and the peak is that of their running sum; what
libraries such as oneDNN allocate for themselves, past torch, is not seen.
"""

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile


def peak_bytes(layer: nn.Module, x_BLD: Tensor) -> int:
    """Returns the largest number of bytes in use at any moment of a pass, beyond those in use before it."""
    _forget_gradients(layer, x_BLD)
    if x_BLD.device.type == "cuda":
        torch.cuda.synchronize(x_BLD.device)
        torch.cuda.reset_peak_memory_stats(x_BLD.device)
        before_bytes = torch.cuda.memory_allocated(x_BLD.device)
        _pass(layer, x_BLD)
        peak = torch.cuda.max_memory_allocated(x_BLD.device) - before_bytes
        _forget_gradients(layer, x_BLD)
        return peak
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _pass(layer, x_BLD)
    _forget_gradients(layer, x_BLD)
    results = profiler.profiler
    assert results is not None
    events = results.kineto_results.events()
    changes_bytes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    peak = held = 0
    for _, change in changes_bytes:
        held += change
        peak = max(peak, held)
    return peak


def _forget_gradients(layer: nn.Module, x_BLD: Tensor) -> None:
    layer.zero_grad(set_to_none=True)
    x_BLD.grad = None


def _pass(layer: nn.Module, x_BLD: Tensor) -> None:
    y_BLD = layer(x_BLD)
    y_BLD.backward(torch.ones_like(y_BLD))
