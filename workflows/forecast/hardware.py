"""A forecast's hardware, detected or named, and its rate of matrix products.

hardware = find(8, "h100")
dtype, flop_s = hardware.flop_s("auto", threads=1)  # of one device
hardware.fraction(512)                              # the fraction of that rate that runs achieve
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

import torch

from model.config import BASE, BIG
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_name, dtype_of, matmul_flop_s
from pipeline.settings import Device, Dtype


@dataclass(frozen=True)
class Gpu:
    """A GPU's published rates."""

    name: str
    float32_flop_s: float
    """Rate without tensor cores, since torch computes float32 exactly by default."""
    bfloat16_flop_s: float | None = None
    """Dense rate of the tensor cores, without sparsity; None if the GPU has no bfloat16."""


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "p100": Gpu("P100", 10.6e12),
        "v100": Gpu("V100", 15.7e12),
        "t4": Gpu("T4", 8.1e12),
        "a10": Gpu("A10", 31.2e12, 125e12),
        "a100": Gpu("A100", 19.5e12, 312e12),
        "l4": Gpu("L4", 30.3e12, 121e12),
        "l40s": Gpu("L40S", 91.6e12, 362e12),
        "rtx3090": Gpu("RTX 3090", 35.6e12, 71e12),
        "rtx4090": Gpu("RTX 4090", 82.6e12, 165.2e12),
        "h100": Gpu("H100 SXM", 67e12, 989e12),
        "h200": Gpu("H200 SXM", 67e12, 989e12),
        "b200": Gpu("B200", 75e12, 2250e12),
    }
)
"""Rates from NVIDIA's data sheets and, for the two RTX cards, from its white papers on GA102 and Ada, with float32
accumulation. P100 and V100 are SXM2 boards, A100 is the 80 GB model. If a sheet lists bfloat16 only with sparsity, half
of that."""

GPU_FRACTIONS: Mapping[int, float] = MappingProxyType({BASE.d_model: 0.146, BIG.d_model: 0.22})
"""Achieved fraction of the rate by width of the model. Base was measured on one H200 with 8 micro-batches of 3,125
tokens per update. Big is estimated from base's kernel times: 3.4× for products, 2× for all others."""
CPU_WIDEST = 256
CPU_FRACTIONS: Mapping[int, float] = MappingProxyType({128: 0.23, 192: 0.47, CPU_WIDEST: 0.59, BASE.d_model: 0.77})
"""Achieved fraction of the rate by width of the model, in float32 on two cores, measured in runs of profiles embedded
(400 tokens per update) and multi30k (1,000) as counted_flop / (train_s · matmul_flop_s) from run.json. Wider models
were not measured: base has the fraction of width 256 in updates of 4,096 tokens (`benchmarks.training`)."""


@dataclass(frozen=True)
class Hardware:
    """A number of equal devices; all CPU cores together are one device."""

    kind: Literal["cpu", "gpu"]
    name: str
    devices: int = 1
    gpu: Gpu | None = None
    """The GPU whose published rates are used; None for a device of this machine, whose rate is measured."""

    def flop_s(self, setting: Dtype, threads: int) -> tuple[str, float]:
        """Returns the dtype of a run with this setting, and one device's rate in it; for CPUs, with `threads` cores."""
        if self.gpu is None:
            device = "cuda" if self.kind == "gpu" else "cpu"
            dtype = dtype_of(setting, device)
            return dtype_name(dtype), _measured(device, dtype, threads)
        if setting == "float32" or self.gpu.bfloat16_flop_s is None:
            return "float32", self.gpu.float32_flop_s
        return "bfloat16", self.gpu.bfloat16_flop_s

    def fraction(self, d_model: int) -> float | None:
        """Returns the achieved fraction of the rate of the widest known model up to this width, or None."""
        return self.fractions.get(max((width for width in self.fractions if width <= d_model), default=0))

    @property
    def fractions(self) -> Mapping[int, float]:
        """The known fractions of the rate, by width of the model."""
        return GPU_FRACTIONS if self.kind == "gpu" else CPU_FRACTIONS


def find(gpus: int | None, gpu: str | None, device: Device = "auto") -> Hardware:
    """Returns the named hardware, or this machine's GPUs, or its CPU if it has none or `device` is cpu.

    Raises UserError if `gpu` is unknown, or if `gpus` is given without `gpu` on a machine that has no GPU.
    """
    if gpu is not None:
        known = GPUS.get(gpu.lower())
        if known is None:
            raise UserError(f"--gpu {gpu}: choose one of {', '.join(GPUS)}")
        return Hardware("gpu", known.name, gpus or 1, known)
    has_gpu = torch.cuda.is_available()
    if gpus is not None and not has_gpu:
        raise UserError(f"--gpus {gpus}: torch finds no GPU here; name one with --gpu: {', '.join(GPUS)}")
    if has_gpu and (gpus is not None or device != "cpu"):
        return Hardware("gpu", device_name("cuda"), gpus or torch.cuda.device_count())
    return Hardware("cpu", device_name("cpu"))


@cache
def _measured(device: str, dtype: torch.dtype, threads: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return matmul_flop_s(device, dtype)
    finally:
        torch.set_num_threads(before)
