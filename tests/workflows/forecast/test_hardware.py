"""A forecast's hardware: published rates, fractions of them, and the choice of devices."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from workflows.forecast import hardware
from workflows.forecast.hardware import CPU_FRACTIONS, GPU_FRACTIONS, GPUS, Hardware, find


def test_a_width_has_the_share_of_the_widest_known_one_below() -> None:
    """Widths below all known ones have no fraction."""
    for kind, fractions in (("gpu", GPU_FRACTIONS), ("cpu", CPU_FRACTIONS)):
        of_kind, widths = Hardware(kind, "a device"), sorted(fractions)
        assert of_kind.fraction(widths[0] - 1) is None
        for width, wider in pairwise([*widths, 4096]):
            assert of_kind.fraction(width) == of_kind.fraction(wider - 1) == fractions[width]


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
