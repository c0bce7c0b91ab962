"""A forecast's hardware: published rates, fractions of them, and the choice of devices."""

from dataclasses import replace

import pytest
import torch

from model.config import BASE, BIG
from workflows.forecast import hardware
from workflows.forecast.hardware import CPU_FRACTIONS, GPU_FRACTIONS, GPUS, Hardware, find


def test_a_width_has_the_share_of_the_widest_known_one_below() -> None:
    """Widths below all known ones have no fraction. The fractions are those of the docs."""
    gpu, cpu = Hardware("gpu", "a GPU"), Hardware("cpu", "a CPU")
    assert [gpu.fraction(width) for width in (64, BASE.d_model, BIG.d_model - 1, BIG.d_model, 4096)] == [
        None,
        0.146,
        0.146,
        0.22,
        0.22,
    ]
    assert [cpu.fraction(width) for width in (64, 128, 191, 192, 255, 256, 511, 512, 1024)] == [
        None,
        0.23,
        0.23,
        0.47,
        0.47,
        0.59,
        0.59,
        0.77,
        0.77,
    ]
    assert (len(GPU_FRACTIONS), len(CPU_FRACTIONS)) == (2, 4)


def test_the_rate_of_cpus_is_that_of_the_training_s_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU is measured with this number of threads, and torch's is restored. A GPU's rate does not depend on it."""
    monkeypatch.setattr(hardware, "matmul_flop_s", lambda device, dtype: 1e10 * torch.get_num_threads())
    before = torch.get_num_threads()
    cpu = Hardware("cpu", "a CPU")
    assert [cpu.flop_s("float32", threads) for threads in (1, 3)] == [("float32", 1e10), ("float32", 3e10)]
    assert torch.get_num_threads() == before
    assert Hardware("gpu", "H100", gpu=GPUS["h100"]).flop_s("float32", 3) == ("float32", 67e12)


def test_dtype_follows_precision_and_gpu() -> None:
    """bfloat16 is used unless float32 is requested or the GPU lacks it."""
    h100 = Hardware("gpu", "H100 SXM", gpu=GPUS["h100"])
    assert h100.flop_s("auto", 1) == h100.flop_s("bfloat16", 1) == ("bfloat16", 989e12)
    assert h100.flop_s("float32", 1) == ("float32", 67e12)
    assert replace(h100, gpu=GPUS["v100"]).flop_s("auto", 1) == ("float32", 15.7e12)


def test_what_is_named_is_forecast_for() -> None:
    """A named GPU counts once without a number. Case is ignored. Without a name, it is this machine."""
    assert find(None, "H100") == Hardware("gpu", "H100 SXM", 1, GPUS["h100"])
    assert find(4, "t4").devices == 4
    here = find(None, None)
    assert (here.kind, here.gpu) == ("gpu" if torch.cuda.is_available() else "cpu", None)
    assert find(None, None, "cpu") == Hardware("cpu", find(None, None, "cpu").name)
