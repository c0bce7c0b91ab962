"""Properties of devices: name, dtype, matmul rate, and whether torch.compile works."""

import logging
import os
import platform
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch

from model.kernels.attention import check
from pipeline.environment import DETERMINISTIC
from pipeline.errors import UserError
from pipeline.settings import Dtype

log = logging.getLogger(__name__)

MATMUL_S = 0.3
"""Duration of a `matmul_flop_s` measurement."""
LOGICAL_GPUS = "AIAYN_LOGICAL_GPUS"
"""Environment variable for tests that schedule on GPUs that only Ray counts (`ray start --num-gpus 2`): if it is 1,
processes that reserve a GPU compute on CPUs instead."""


def reserved_gpu(device: str) -> str:
    """Returns Ray's GPU for this process, "cuda:0", or "cpu" if LOGICAL_GPUS is set. Raises UserError without a GPU."""
    if os.environ.get(LOGICAL_GPUS) == "1":
        return "cpu"
    if not torch.cuda.is_available():
        raise UserError(
            f"Ray counts a GPU on {platform.node()}, but torch finds none there; install a torch that supports its "
            "driver, or set device to cpu"
        )
    return device


def dtype_of(setting: Dtype, device: str) -> torch.dtype:
    """Returns the dtype of a setting on a device."""
    dtype: torch.dtype = compute_dtype(device) if setting == "auto" else getattr(torch, setting)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """Returns a dtype's name in files and tables, e.g. "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def matmul_flop_s(device: str, dtype: torch.dtype) -> float:
    """Measures a device's rate on square products with torch's current threads, for 0.3 s after a warm-up.

    Matrices have 8,192 columns on a GPU and 2,048 on CPUs, where larger ones are no faster. On a GPU, ten products are
    queued at a time, so that it need not wait for the host.
    """
    on_gpu = device.startswith("cuda")
    size, at_once = (8192, 10) if on_gpu else (2048, 1)
    x = torch.randn(size, size, device=device, generator=torch.Generator(device).manual_seed(0)).to(dtype)

    def multiply(products: int) -> None:
        for _ in range(products):
            x @ x
        if on_gpu:
            torch.cuda.synchronize(device)

    multiply(1)
    products, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < MATMUL_S:
        multiply(at_once)
        products += at_once
    return 2 * size**3 * products / (time.perf_counter() - started_s)


def device_name(device: str) -> str:
    """Returns the name of the GPU or CPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def instruction_set(device: str) -> str:
    """Returns the instruction set of torch's kernels on a device, "AVX2" or "sm_90": others may round differently."""
    if device.startswith("cuda"):
        return "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    return torch.backends.cpu.get_cpu_capability()


def compute_dtype(device: str) -> torch.dtype:
    """Returns bfloat16 if the device supports it natively and, on a CPU, is faster with it; else float32.

    It depends on the device's kind only. A measurement would depend on the load, and the weights of a run with it.
    AVX512-BF16 does not tell: AMD's has twice the rate of float32, Intel's without AMX half of it (docs/recovery.md).
    Of the CPUs with AVX512-BF16, only AMD's have SSE4a.
    """
    if not multiplies_bfloat16(device):
        return torch.float32
    capabilities = torch.cpu.get_capabilities()
    gains = device.startswith("cuda") or capabilities.get("amx_bf16") or capabilities.get("sse4a")
    return torch.bfloat16 if gains else torch.float32


def multiplies_bfloat16(device: str) -> bool:
    """Whether the device multiplies bfloat16 natively (AMX, AVX512-BF16, recent GPUs), unless oneDNN must not."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL")
    if isa in ("AVX", "AVX512_CORE") or isa.startswith(("SSE", "AVX2", "AVX512_CORE_VNNI")):
        return False
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def compiles(device: str) -> bool:
    """Whether to use `torch.compile`: on GPUs where it works.

    On two CPU cores compiled layers were slower than eager ones (3+3 layers of 256; mostly because of random bits), and
    compiling took two minutes.
    """
    return device.startswith("cuda") and toy_layer_compiles(device)


@cache
def toy_layer_compiles(device: str) -> bool:
    """Compiles a tiny layer and runs it forward and backward; logs a warning if that fails.

    It fails without Triton, a C compiler or Python's headers, any of which is often missing.
    """
    layer = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16)).to(device)
    compiled = torch.compile(layer, dynamic=True)
    return _works(lambda: compiled(torch.randn(4, 16, device=device)).sum().backward(), device, "layers", "compiled")


@cache
def attention_kernels_work(device: str, n_heads: int, d_k: int, d_v: int) -> bool:
    """Whether a GPU computes packed attention with these heads as it is defined; logs a warning if not."""
    return _works(partial(check, device, n_heads, d_k, d_v), device, "batches", "packed")


def _works(attempt: Callable[[], object], device: str, what: str, change: str) -> bool:
    try:
        attempt()
    except Exception as error:  # Dynamo, Inductor, Triton and their compilers raise various exceptions
        log.warning("on %s %s cannot be %s (%s)", device, what, change, " ".join(str(error).split())[:300])
        return False
    return True


def call_mkl_once() -> None:
    """Calls MKL's functions in one thread: if several are first, one may be imprecise (pytorch/pytorch#188792)."""
    for function in (torch.exp, torch.log, torch.sqrt, torch.sin, torch.cos, torch.tanh, torch.sigmoid):
        function(torch.ones(1))


def make_deterministic() -> None:
    """Makes GPU computation in this process bit-reproducible, also across processes.

    Call it before the first matrix product, because cuBLAS reads its workspace size only once. Operations without a
    deterministic kernel then raise RuntimeError. CPUs are deterministic anyway.
    """
    os.environ |= DETERMINISTIC | os.environ
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
