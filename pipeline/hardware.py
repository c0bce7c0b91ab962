"""Facts about the machine: a device's name, its dtype, its matrix multiplication rate, whether it compiles."""

import logging
import os
import platform
import time
from functools import cache
from pathlib import Path

import torch

from pipeline.errors import UserError
from pipeline.settings import DecodingDtype

log = logging.getLogger(__name__)

MATMUL_S = 0.3
"""How long `matmul_flop_s` measures."""
BFLOAT16_GAIN = 1.2
"""How many times as fast as float32 a processor must multiply bfloat16, because rounding takes time too. Known
processors are far from it on either side, so that the choice does not depend on what else the machine does."""
LOGICAL_GPUS = "AIAYN_LOGICAL_GPUS"
"""The environment variable by which tests place work on GPUs that Ray only counts (`ray start --num-gpus 2`): if it is
1, processes for which Ray has reserved one compute on CPUs, and everything else is as on GPUs."""


def reserved_gpu(device: str) -> str:
    """Returns a GPU that Ray has reserved for this process, e.g. "cuda:0"; "cpu" where LOGICAL_GPUS is set.

    Raises UserError if torch finds no GPU.
    """
    if os.environ.get(LOGICAL_GPUS) == "1":
        return "cpu"
    if not torch.cuda.is_available():
        raise UserError(
            f"Ray counts a GPU on {platform.node()}, but torch finds none there; install a torch that suits its "
            "driver, or set device to cpu"
        )
    return device


def dtype_of(setting: DecodingDtype, device: str) -> torch.dtype:
    """Returns the dtype that a setting means on a device."""
    dtype: torch.dtype = compute_dtype(device) if setting == "auto" else getattr(torch, setting)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """Returns the name of a dtype as files and tables give it, e.g. "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def matmul_flop_s(device: str, dtype: torch.dtype) -> float:
    """Measures the rate of a square product on one device with torch's current threads: 0.3 s, after one to warm up.

    The matrices have 8192 columns on a GPU and 2048 on CPUs, where the rate no longer grows with the size. A GPU is
    given ten products at a time, so that it does not wait for the host between them.
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
    """Returns the name of the GPU or of the processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def instruction_set(device: str) -> str:
    """Returns the instructions that torch's own kernels use on a device, e.g. "AVX2" or "sm_90".

    The same kernel for other instructions may round differently.
    """
    if device.startswith("cuda"):
        return "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    return torch.backends.cpu.get_cpu_capability()


def compute_dtype(device: str) -> torch.dtype:
    """Returns bfloat16 if the device multiplies it natively and a processor gains by it, else float32.

    A processor gains if its products take at most 1 / `BFLOAT16_GAIN` of the time of those in float32.
    """
    if not multiplies_bfloat16(device):
        return torch.float32
    gains = device.startswith("cuda") or bfloat16_speedup() >= BFLOAT16_GAIN
    return torch.bfloat16 if gains else torch.float32


def multiplies_bfloat16(device: str) -> bool:
    """Tells whether the device multiplies bfloat16 natively (AMX, AVX512-BF16, recent GPUs)."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


@cache
def bfloat16_speedup() -> float:
    """Measures how many times as fast this processor multiplies bfloat16 as float32, on torch's current threads.

    Having the instructions says nothing: Intel's AVX512-BF16 without AMX multiplies at half the rate of float32, AMD's
    at twice. The products alternate and the fastest of each type counts, so that other work on the machine hardly
    matters; it takes some 50 ms, once in a process.
    """
    size, rounds = 512, 10
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(size, size, generator=generator)
    least_s: dict[torch.dtype, float] = {}
    for _ in range(rounds):
        for x in (exact, exact.bfloat16()):
            started_s = time.perf_counter()
            x @ x
            took_s = time.perf_counter() - started_s
            least_s[x.dtype] = min(took_s, least_s.get(x.dtype, took_s))
    return least_s[torch.float32] / least_s[torch.bfloat16]


def compiles(device: str) -> bool:
    """Tells whether `torch.compile` pays off: on GPUs on which it works.

    On two CPU cores the compiled layers were slower than the plain ones (3+3 layers of 256; mostly because of the
    random bits), and compiling took two minutes.
    """
    return device.startswith("cuda") and toy_layer_compiles(device)


@cache
def toy_layer_compiles(device: str) -> bool:
    """Compiles a tiny layer, runs it forward and backward, and logs a warning if that fails.

    It fails without Triton, a C compiler or Python's header files, each of which is often missing.
    """
    layer = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16)).to(device)
    try:
        torch.compile(layer, dynamic=True)(torch.randn(4, 16, device=device)).sum().backward()
    except Exception as error:  # Dynamo, Inductor, Triton and the compilers they start each raise their own
        reason = " ".join(str(error).split())[:300]
        log.warning("torch.compile does not work on %s, so the layers are not compiled (%s)", device, reason)
        return False
    return True


def make_deterministic() -> None:
    """Makes every later computation of this process on a GPU end in the same bits, in other processes too.

    Call it before the first matrix product: cuBLAS reads its workspace's size only once. Operations without a
    deterministic kernel raise RuntimeError from then on. On CPUs the bits do not differ anyway.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
