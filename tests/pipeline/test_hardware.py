"""pipeline.hardware: what is measured is believable."""

import pytest
import torch
from torch._inductor.cpp_builder import cpp_compiler_search

from pipeline.hardware import compiles, device_name, matmul_flop_s, toy_layer_compiles


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmul_rate_is_that_of_a_processor(dtype: torch.dtype) -> None:
    """The measured rate is above 0.1 GFLOP/s and below 1 PFLOP/s."""
    assert 1e8 < matmul_flop_s("cpu", dtype) < 1e15


def test_processor_has_a_name() -> None:
    """One line, not empty."""
    assert device_name("cpu").strip()
    assert "\n" not in device_name("cpu")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pipeline.hardware"]


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


def test_compiling_is_for_gpus() -> None:
    """On a CPU compiled layers were slower, so nothing is tried there."""
    assert not compiles("cpu")
