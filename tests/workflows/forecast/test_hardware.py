"""The hardware of a forecast: published rates, and what is chosen."""

from dataclasses import replace

import torch

from workflows.forecast.hardware import GPUS, Hardware, find


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
