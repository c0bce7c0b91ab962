import platform
import re
import time
from pathlib import Path

import pytest
import torch
from torch._inductor.cpp_builder import cpp_compiler_search

from model.kernels import attention as kernels
from pipeline import hardware
from pipeline.errors import UserError


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pipeline.hardware"]


@pytest.mark.slow
def test_layers_compile_with_a_compiler(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hardware.toy_layer_compiles.cache_clear()
    assert hardware.toy_layer_compiles("cpu")
    assert not _warnings(caplog)
    hardware.toy_layer_compiles.cache_clear()
    torch.compiler.reset()
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", (None, "no-such-compiler"))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    cpp_compiler_search.cache_clear()
    try:
        assert not hardware.toy_layer_compiles("cpu")
    finally:
        cpp_compiler_search.cache_clear()
        hardware.toy_layer_compiles.cache_clear()
        torch.compiler.reset()
    (warning,) = _warnings(caplog)
    assert "\n" not in warning
    assert "on cpu layers cannot be compiled" in warning


def test_kernels_that_differ_are_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    hardware.attention_kernels_work.cache_clear()
    monkeypatch.setattr(kernels, "CHECKED", 8)  # in place of kernels, the definition, which needs memory for all pairs
    assert hardware.attention_kernels_work("cpu", 2, 16, 24)
    assert not _warnings(caplog)
    defined = kernels.packed_attention
    monkeypatch.setattr(kernels, "packed_attention", lambda *x: [y * (y.dtype == torch.float32) for y in defined(*x)])
    assert not hardware.attention_kernels_work("cpu", 2, 16, 16)
    hardware.attention_kernels_work.cache_clear()
    (warning,) = _warnings(caplog)
    assert "on cpu batches cannot be packed (attention by Triton's kernels differs" in warning


def test_dtypes_are_what_precision_means_here() -> None:
    assert hardware.dtype_of("float32", "cpu") == torch.float32
    assert hardware.dtype_of("bfloat16", "cpu") == torch.bfloat16
    flags = set(Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split())
    assert hardware.multiplies_bfloat16("cpu") == bool(flags & {"amx_bf16", "avx512_bf16"})
    expected = torch.bfloat16 if "amx_bf16" in flags or flags >= {"avx512_bf16", "sse4a"} else torch.float32
    assert hardware.dtype_of("auto", "cpu") == hardware.compute_dtype("cpu") == expected


@pytest.mark.parametrize("flags", ["avx2", "sse4a", "avx512_bf16", "avx512_bf16 sse4a", "avx512_bf16 amx_bf16"])
def test_the_kind_of_a_cpu_decides_its_dtype(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's with AVX512-BF16 and Intel's with AMX gain. Nothing is measured: another load would give other weights."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(flags.split(), True))
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("a clock is read"))
    assert (hardware.compute_dtype("cpu") == torch.bfloat16) is (" " in flags)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert hardware.compute_dtype("cpu") == torch.float32


def test_gpu_that_torch_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with the node's name. Tests that use CPUs in place of GPUs have none."""
    monkeypatch.delenv(hardware.LOGICAL_GPUS, raising=False)
    if torch.cuda.is_available():
        assert hardware.reserved_gpu("cuda:0") == "cuda:0"
    else:
        with pytest.raises(UserError, match=f"^Ray counts a GPU on {re.escape(platform.node())}, but torch finds none"):
            hardware.reserved_gpu("cuda:0")
    monkeypatch.setenv(hardware.LOGICAL_GPUS, "1")
    assert hardware.reserved_gpu("cuda:0") == "cpu"
