"""How a forecast is shown: rates and sizes in fitting units, and what is not known."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from workflows.forecast.estimate import Planned, forecast, render
from workflows.forecast.hardware import GPUS, Hardware
from workflows.profiles.translation import WMT14
from workflows.quantities import duration

BASE = Planned("base", "en-de", WMT14.recipes["base"].training)


def shown(devices: int) -> str:
    """Returns what a terminal of 120 columns shows for so many H100s, with single spaces."""
    result = forecast(WMT14, [replace(BASE, times=2)], Hardware("gpu", "H100 SXM", devices, GPUS["h100"]), Path())
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(render(result))
    return " ".join(console.export_text().split())


def test_the_training_and_its_total_are_shown() -> None:
    """A row has the figures of one seed; the total is that of both."""
    text = shown(1)
    (one,) = forecast(WMT14, [BASE], Hardware("gpu", "H100 SXM", 1, GPUS["h100"]), Path()).trainings
    assert "Forecast for 1 × H100 SXM: 989 TFLOP/s in bfloat16, published" in text
    assert f"base, 2 seeds, each {one.parameters / 1e6:.1f} M {one.counted_flop:.1e}".replace("e+", "e") in text
    assert f"total {2 * one.counted_flop:.1e}".replace("e+", "e") in text
    assert "bfloat16 each, published" in shown(2)


def test_a_gpu_s_time_is_a_range_marked_as_not_measured() -> None:
    """From the rate as the limit to the host; in the heading of the column and in the notes."""
    text = shown(8)
    (one,) = forecast(WMT14, [BASE], Hardware("gpu", "H100 SXM", 8, GPUS["h100"]), Path()).trainings
    assert "time, not" in text
    assert duration(one.seconds) in text
    assert duration(2 * one.seconds) in text
    assert f"to {duration(one.host_bound_s)}" in text
    assert f"to {duration(2 * one.host_bound_s)}" in text
    assert "taken to be 8 ms a micro-batch" in text
    assert "Times are assumptions, not measurements" in text
