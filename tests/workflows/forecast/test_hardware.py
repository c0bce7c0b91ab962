"""The hardware of a forecast: published rates as literal text, the share of them, and what is chosen."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.config import BASE, BIG
from tests.support.fake_cuda import build
from workflows.forecast.hardware import CPU_FRACTIONS, GPU_FRACTIONS, GPUS, LAUNCH_S, Hardware, find


@pytest.mark.parametrize("n_layers", [2, 6])
def test_the_host_launches_the_kernels_that_a_micro_batch_has(n_layers: int, cuda_guard: Path) -> None:
    """Within a hundredth of those counted, which for base is 4.8 ms; a CPU waits for no launch."""
    counts = json.loads(build.run(cuda_guard, "tests.support.fake_cuda.operators", str(n_layers)))
    n_launches = sum(counts["micro-batch"].values())
    assert Hardware("gpu", "a GPU").host_s(n_layers) == pytest.approx(n_launches * LAUNCH_S, rel=0.01)
    assert Hardware("gpu", "a GPU").host_s(6) == pytest.approx(0.0048, rel=0.05)
    assert Hardware("cpu", "a CPU").host_s(n_layers) == 0


def test_a_width_has_the_share_of_the_widest_known_one_below() -> None:
    """Widths below all known ones have the share of the narrowest; the shares are those that the page documents."""
    gpu, cpu = Hardware("gpu", "a GPU"), Hardware("cpu", "a CPU")
    assert [gpu.fraction(width) for width in (64, BASE.d_model, BIG.d_model - 1, BIG.d_model, 4096)] == [
        0.40,
        0.40,
        0.40,
        0.50,
        0.50,
    ]
    assert [cpu.fraction(width) for width in (64, 128, 191, 192, 255, 256, 511, 512, 1024)] == [
        0.23,
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


def test_dtype_follows_precision_and_gpu() -> None:
    """bfloat16 is used unless float32 is asked for or the GPU has none."""
    h100 = Hardware("gpu", "H100 SXM", gpu=GPUS["h100"])
    assert h100.flop_s("auto") == h100.flop_s("bfloat16") == ("bfloat16", 989e12)
    assert h100.flop_s("float32") == ("float32", 67e12)
    assert replace(h100, gpu=GPUS["v100"]).flop_s("auto") == ("float32", 15.7e12)


def test_what_is_named_is_forecast_for() -> None:
    """A named GPU counts once unless a number is given; case does not matter; without a name it is this machine."""
    assert find(None, "H100") == Hardware("gpu", "H100 SXM", 1, GPUS["h100"])
    assert find(4, "t4").devices == 4
    here = find(None, None)
    assert (here.kind, here.gpu) == ("gpu" if torch.cuda.is_available() else "cpu", None)
    assert find(None, None, "cpu") == Hardware("cpu", find(None, None, "cpu").name)
