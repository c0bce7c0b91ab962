"""pipeline.hardware: what is measured is believable."""

import platform
import re
import time
from pathlib import Path

import pytest
import torch
from torch._inductor.cpp_builder import cpp_compiler_search
from torch.utils.flop_counter import FlopCounterMode

from pipeline.errors import UserError
from pipeline.hardware import (
    BFLOAT16_GAIN,
    LOGICAL_GPUS,
    MATMUL_S,
    bfloat16_speedup,
    compute_dtype,
    device_name,
    dtype_of,
    matmul_flop_s,
    multiplies_bfloat16,
    reserved_gpu,
    toy_layer_compiles,
)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pipeline.hardware"]


@pytest.mark.slow
def test_layers_compile_where_there_is_a_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A real compilation succeeds here; with a compiler that does not exist it fails, and one line says so."""
    toy_layer_compiles.cache_clear()
    assert toy_layer_compiles("cpu")
    assert not _warnings(caplog)
    toy_layer_compiles.cache_clear()
    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (None, "no-such-compiler"))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    cpp_compiler_search.cache_clear()
    try:
        assert not toy_layer_compiles("cpu")
    finally:
        cpp_compiler_search.cache_clear()
        toy_layer_compiles.cache_clear()
        torch.compiler.reset()
    (warning,) = _warnings(caplog)
    assert "\n" not in warning
    assert "torch.compile does not work on cpu" in warning


def test_matmul_rate_is_operations_over_seconds() -> None:
    """All products but the one to warm up, as torch counts their operations, divided by at least 0.3 s."""
    started_s = time.perf_counter()
    with FlopCounterMode(display=False) as counter:
        rate_flop_s = matmul_flop_s("cpu", torch.float32)
    elapsed_s = time.perf_counter() - started_s
    product_flop = 2 * 2048**3
    n_products, rest = divmod(counter.get_total_flops(), product_flop)
    assert (rest, n_products > 1) == (0, True)
    assert MATMUL_S == 0.3
    assert MATMUL_S <= (n_products - 1) * product_flop / rate_flop_s <= elapsed_s


def test_dtypes_are_what_precision_means_here() -> None:
    """A named type is that type; "auto" is bfloat16 where the processor multiplies it by itself and faster."""
    assert dtype_of("float32", "cpu") == torch.float32
    assert dtype_of("bfloat16", "cpu") == torch.bfloat16
    flags = set(Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split())
    native = bool(flags & {"amx_bf16", "avx512_bf16"})
    assert multiplies_bfloat16("cpu") == native
    gains = native and bfloat16_speedup() >= BFLOAT16_GAIN
    assert dtype_of("auto", "cpu") == compute_dtype("cpu") == (torch.bfloat16 if gains else torch.float32)


def test_processor_has_the_name_that_linux_gives_it() -> None:
    """It is the first `model name` of /proc/cpuinfo."""
    named = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert device_name("cpu") == (named[0].strip() if named else platform.processor() or platform.machine())


def test_gpu_that_torch_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line that says where, except in tests that ask for CPUs in place of GPUs."""
    monkeypatch.delenv(LOGICAL_GPUS, raising=False)
    if torch.cuda.is_available():
        assert reserved_gpu("cuda:0") == "cuda:0"
    else:
        with pytest.raises(UserError, match=f"^Ray counts a GPU on {re.escape(platform.node())}, but torch finds none"):
            reserved_gpu("cuda:0")
    monkeypatch.setenv(LOGICAL_GPUS, "1")
    assert reserved_gpu("cuda:0") == "cpu"
