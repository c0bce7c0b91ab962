"""The hardware that a forecast is for, found here or named, and how fast it multiplies.

hardware = find(8, "h100")
number_type, flop_s = hardware.flop_s("auto")      # of one device
hardware.fraction(d_model=512)                     # of that rate, what a training reaches
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

import torch

from model.config import BASE, BIG
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_of, matmul_flop_s
from pipeline.settings import Device, Precision


@dataclass(frozen=True)
class Gpu:
    """A GPU's published rates in floating-point operations a second."""

    name: str
    float32_flop_s: float
    """Without tensor cores: torch keeps float32 exact unless it is told otherwise."""
    bfloat16_flop_s: float | None = None
    """Of the tensor cores, dense: what sparsity would add is not counted. None: the GPU has no bfloat16."""


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
"""NVIDIA's data sheets, and for the two RTX its white papers on GA102 and Ada, products summed in float32. P100 and
V100 are the SXM2 boards. Where a sheet prints bfloat16 with sparsity alone, half of it."""

GPU_FRACTIONS: Mapping[int, float] = MappingProxyType({BASE.d_model: 0.40, BIG.d_model: 0.50})
"""By width of the model: what this project aims at for the paper's base and big on one GPU. Not measured."""
CPU_WIDEST = 256
CPU_FRACTIONS: Mapping[int, float] = MappingProxyType({128: 0.23, 192: 0.47, CPU_WIDEST: 0.59, BASE.d_model: 0.77})
"""By width of the model, in float32 on two cores: trainings of the profiles embedded (400 tokens an update) and
multi30k (1 000), from run.json: counted_flop / (train_s · matmul_flop_s). Wider ones have not been measured: base
stands with what a width of 256 reaches in updates of 4 096 tokens (`aiayn bench train`)."""


@dataclass(frozen=True)
class Hardware:
    """So many devices of a kind. All CPU cores together are one device."""

    kind: Literal["cpu", "gpu"]
    name: str
    devices: int = 1
    gpu: Gpu | None = None
    """Of which published rates are taken; None: the device is here, and is measured."""

    def flop_s(self, precision: Precision) -> tuple[str, float]:
        """Number type in which a training with this `precision` computes, and one device's rate in it."""
        if self.gpu is None:
            device = "cuda" if self.kind == "gpu" else "cpu"
            dtype = dtype_of(precision, device)
            return str(dtype).removeprefix("torch."), _measured(device, dtype)
        if precision == "float32" or self.gpu.bfloat16_flop_s is None:
            return "float32", self.gpu.float32_flop_s
        return "bfloat16", self.gpu.bfloat16_flop_s

    def fraction(self, d_model: int) -> float:
        """Of the rate, what a training of a model of this width reaches: that of the widest known one not wider."""
        known = GPU_FRACTIONS if self.kind == "gpu" else CPU_FRACTIONS
        return known[max((width for width in known if width <= d_model), default=min(known))]


def only_with_plan(plan: bool, gpus: int | None, gpu: str | None) -> None:
    """Raises UserError where `--gpus` or `--gpu` stands without `--plan`."""
    if not plan and (gpus is not None or gpu is not None):
        raise UserError("--gpus and --gpu say what --plan is to forecast for; add --plan, or leave them out")


def find(gpus: int | None, gpu: str | None, device: Device = "auto") -> Hardware:
    """The hardware named; else the GPUs found here, or, where there are none or the training wants a CPU, the CPU.

    Raises UserError where a number of GPUs is given, none is named and none found, or a GPU is not known.
    """
    if gpu is not None:
        known = GPUS.get(gpu.lower())
        if known is None:
            raise UserError(f"--gpu {gpu}: choose one of {', '.join(GPUS)}")
        return Hardware("gpu", known.name, gpus or 1, known)
    found = torch.cuda.is_available()
    if gpus is not None and not found:
        raise UserError(f"--gpus {gpus}: torch finds no GPU here; name one by --gpu: {', '.join(GPUS)}")
    if found and (gpus is not None or device != "cpu"):
        return Hardware("gpu", device_name("cuda"), gpus or torch.cuda.device_count())
    return Hardware("cpu", device_name("cpu"))


@cache
def _measured(device: str, dtype: torch.dtype) -> float:
    return matmul_flop_s(device, dtype)
