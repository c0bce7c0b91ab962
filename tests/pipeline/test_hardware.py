"""pipeline.hardware: what is measured is believable."""

import pytest
import torch

from pipeline.hardware import device_name, matmul_flop_s


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmul_rate_is_that_of_a_processor(dtype: torch.dtype) -> None:
    """The measured rate is above 0.1 GFLOP/s and below 1 PFLOP/s."""
    assert 1e8 < matmul_flop_s("cpu", dtype) < 1e15


def test_processor_has_a_name() -> None:
    """One line, not empty."""
    assert device_name("cpu").strip()
    assert "\n" not in device_name("cpu")
