"""The hardware of a forecast: published rates as literal text, the share of them, and what is chosen."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import BASE, BIG, OptimizerConfig
from model.rows import Batch
from model.training_step import TrainingStep
from model.transformer import Transformer
from workflows.forecast.hardware import CPU_FRACTIONS, GPU_FRACTIONS, GPUS, LAUNCH_S, Hardware, find

NO_KERNEL = {
    "t",
    "view",
    "expand",
    "slice",
    "select",
    "detach",
    "transpose",
    "permute",
    "unsqueeze",
    "squeeze",
    "split",
}
NO_KERNEL |= {"_unsafe_view", "as_strided", "split_with_sizes", "empty", "empty_like", "alias", "unbind", "new_empty"}


class Launches(TorchDispatchMode):
    """Counts operations that compute something; on the meta device the model runs as on a GPU."""

    n = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts one operation and runs it."""
        self.n += str(function).split(".")[1] not in NO_KERNEL
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("n_layers", [2, 6])
def test_the_host_launches_the_kernels_that_a_micro_batch_has(n_layers: int) -> None:
    """Within a tenth of those counted, which for base is 8.4 ms; a CPU waits for no launch."""
    step = TrainingStep(Transformer(replace(BASE, n_layers=n_layers)).to("meta"), OptimizerConfig(), torch.bfloat16)
    tokens = torch.ones(100, 31, dtype=torch.long, device="meta")
    with Launches() as launches:
        step.accumulate(Batch.in_grid(tokens, tokens, torch.bfloat16), seed=1)
    assert Hardware("gpu", "a GPU").host_s(n_layers) == pytest.approx(launches.n * LAUNCH_S, rel=0.1)
    assert Hardware("gpu", "a GPU").host_s(6) == pytest.approx(0.0084, rel=0.05)
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
