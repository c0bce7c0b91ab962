"""What a device is called, what it computes in, and how fast it multiplies: the figures beside every measured time."""

import platform
import time
from pathlib import Path

import torch

from model.training_step import compute_dtype
from pipeline.settings import Precision

MATMUL_S = 0.3

KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""Environment with which a process that computes starts: glibc keeps what is freed for the next update.

It would give large blocks back to the kernel and get them anew, page by page: 22 000 page faults of about 5 µs in an
update of 4 096 tokens (3+3 layers of 256). Without them it takes 2 to 5 % less time in float32 on two cores; where
products take less, the share is larger."""


def dtype_of(precision: Precision, device: str) -> torch.dtype:
    """The number type that `precision` asks for on a device."""
    dtype: torch.dtype = compute_dtype(device) if precision == "auto" else getattr(torch, precision)
    return dtype


def matmul_flop_s(device: str, dtype: torch.dtype = torch.float32) -> float:
    """Rate of a square product on one device with the threads torch has now, measured for 0.3 s after one to warm up.

    8192 columns on a GPU, 2048 on CPUs: the rate no longer grows with the size there.
    """
    on_gpu = device.startswith("cuda")
    size = 8192 if on_gpu else 2048
    x = torch.randn(size, size, device=device, generator=torch.Generator(device).manual_seed(0)).to(dtype)

    def product() -> None:
        x @ x
        if on_gpu:
            torch.cuda.synchronize()

    product()
    products, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < MATMUL_S:
        product()
        products += 1
    return 2 * size**3 * products / (time.perf_counter() - started_s)


def device_name(device: str) -> str:
    """The GPU's name, or the processor's."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
