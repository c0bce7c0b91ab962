"""The hardware that a forecast is for, detected or named, and its rate of matrix products.

hardware = find(8, "h100")
dtype, flop_s = hardware.flop_s("auto", threads=1)  # of one device
hardware.fraction(512)                              # the share of that rate that a training reaches
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch

from model.config import BASE, BIG
from model.flops import LAYER_KERNELS, count_parameters, memory_bytes
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_name, dtype_of, matmul_flop_s
from pipeline.settings import Device, Dtype, TrainingSettings


@dataclass(frozen=True)
class Gpu:
    """A GPU's published rates."""

    name: str
    memory_bytes_s: float
    link_bytes_s: float
    """Rate in one direction of its links to other GPUs of the machine: NVLink, or PCIe."""
    float32_flop_s: float
    """Rate without tensor cores, since torch computes float32 exactly by default."""
    bfloat16_flop_s: float | None = None
    """Dense rate of the tensor cores, without sparsity; None if the GPU has no bfloat16."""


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "p100": Gpu("P100", 732e9, 80e9, 10.6e12),
        "v100": Gpu("V100", 900e9, 150e9, 15.7e12),
        "t4": Gpu("T4", 300e9, 16e9, 8.1e12),
        "a10": Gpu("A10", 600e9, 32e9, 31.2e12, 125e12),
        "a100": Gpu("A100", 2039e9, 300e9, 19.5e12, 312e12),
        "l4": Gpu("L4", 300e9, 32e9, 30.3e12, 121e12),
        "l40s": Gpu("L40S", 864e9, 32e9, 91.6e12, 362e12),
        "rtx3090": Gpu("RTX 3090", 936e9, 32e9, 35.6e12, 71e12),
        "rtx4090": Gpu("RTX 4090", 1008e9, 32e9, 82.6e12, 165.2e12),
        "h100": Gpu("H100 SXM", 3350e9, 450e9, 67e12, 989e12),
        "h200": Gpu("H200 SXM", 4800e9, 450e9, 67e12, 989e12),
        "b200": Gpu("B200", 8000e9, 900e9, 75e12, 2250e12),
    }
)
"""Rates from NVIDIA's data sheets and, for the two RTX cards, from its white papers on GA102 and Ada, with products
summed in float32. P100 and V100 are the SXM2 boards, A100 is the one of 80 GB. Where a sheet prints bfloat16 only with
sparsity, half of it; where it prints a link's rate in both directions together, half of it."""

GPU_FRACTIONS: Mapping[int, float] = MappingProxyType({BASE.d_model: 0.17, BIG.d_model: 0.25})
"""Share of the rate by width of the model. Base was measured on one H200 with 8 micro-batches of 3 125 tokens an
update; big is reckoned from the times of base's kernels: 3.4 times as long for products, twice for all others."""
CPU_WIDEST = 256
CPU_FRACTIONS: Mapping[int, float] = MappingProxyType({128: 0.23, 192: 0.47, CPU_WIDEST: 0.59, BASE.d_model: 0.77})
"""Share of the rate by width of the model, in float32 on two cores, measured in trainings of the profiles embedded (400
tokens per update) and multi30k (1 000) as counted_flop / (train_s · matmul_flop_s) from run.json. Wider models have not
been measured: base is given what a width of 256 reaches in updates of 4 096 tokens of `benchmarks.training`."""


EMPTY_BLOCK_S, BETWEEN_KERNELS_S, LINK_FRACTION = 2e-9, 1e-6, 0.8
"""Assumed: an H100 runs some 260 blocks at a time, and one without rows takes half a microsecond; a kernel in a CUDA
graph begins a microsecond after the one before. Protocols leave NCCL this much of a link's rate, as one of its
maintainers says (github.com/NVIDIA/nccl-tests/issues/212)."""


class UpdateTime(NamedTuple):
    """The parts of an update on the device with the most micro-batches, in seconds. Their sum is its duration."""

    products_s: float
    memory_s: float = 0.0
    exchange_s: float = 0.0
    launches_s: float = 0.0


@dataclass(frozen=True)
class Hardware:
    """A number of equal devices. All CPU cores together count as one device."""

    kind: Literal["cpu", "gpu"]
    name: str
    devices: int = 1
    gpu: Gpu | None = None
    """The GPU whose published rates are used; None if the device is present and its rate is measured."""

    def flop_s(self, setting: Dtype, threads: int) -> tuple[str, float]:
        """Returns the dtype in which a training with this setting computes, and one device's rate in it.

        The rate of CPUs is that of as many cores as there are `threads`.
        """
        if self.gpu is None:
            device = "cuda" if self.kind == "gpu" else "cpu"
            dtype = dtype_of(setting, device)
            return dtype_name(dtype), _measured(device, dtype, threads)
        if setting == "float32" or self.gpu.bfloat16_flop_s is None:
            return "float32", self.gpu.float32_flop_s
        return "bfloat16", self.gpu.bfloat16_flop_s

    def fraction(self, d_model: int) -> float | None:
        """Returns the share of the rate that the widest known model of at most this width reaches, or None."""
        return self.fractions.get(max((width for width in self.fractions if width <= d_model), default=0))

    @property
    def fractions(self) -> Mapping[int, float]:
        """The known shares of the rate, by width of the model."""
        return GPU_FRACTIONS if self.kind == "gpu" else CPU_FRACTIONS

    def update_time(
        self, training: TrainingSettings, products_s: float, micro_batches: int, workers: int, empty_blocks: float
    ) -> UpdateTime:
        """Adds what a named GPU with `micro_batches` of an update does beside products, packed and in a CUDA graph.

        `empty_blocks` are those that a kernel of FlashAttention-2 launches in vain for one head and micro-batch.
        """
        if self.gpu is None:
            return UpdateTime(products_s)
        model = training.model
        gradient_bytes = (4 if training.exchange == "float32" else 2) * count_parameters(model)
        # Each layer has three attentions, each of one kernel forward and three backward.
        empty_s = 3 * 4 * model.n_heads * empty_blocks * EMPTY_BLOCK_S
        return UpdateTime(
            products_s,
            memory_bytes(model, micro_batches) / self.gpu.memory_bytes_s,
            2 * (workers - 1) / workers * gradient_bytes / (LINK_FRACTION * self.gpu.link_bytes_s),
            micro_batches * model.n_layers * (LAYER_KERNELS * BETWEEN_KERNELS_S + empty_s),
        )


def find(gpus: int | None, gpu: str | None, device: Device = "auto") -> Hardware:
    """Returns the named hardware, else the GPUs of this machine, else (or if `device` is cpu) its CPU.

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
