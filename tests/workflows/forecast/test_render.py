"""How a forecast is shown: rates and sizes in fitting units, and what is not known."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from workflows.forecast.estimate import _about, _rate, _size, forecast, notes, render
from workflows.forecast.hardware import GPUS, Hardware
from workflows.forecast.planned import Planned
from workflows.profiles import WMT14
from workflows.quantities import duration

BASE = Planned("base", "en-de", WMT14.recipes["base"].training)


@pytest.mark.parametrize(
    ("flop_s", "text"),
    [
        (1.9e11, "190 GFLOP/s"),
        (9.99e11, "999 GFLOP/s"),
        (1e12, "1 TFLOP/s"),
        (10.6e12, "10.6 TFLOP/s"),
        (2.25e15, "2,250 TFLOP/s"),
    ],
)
def test_a_rate_is_in_tera_from_one_tera_on(flop_s: float, text: str) -> None:
    """Lower ones are in giga."""
    assert _rate(flop_s) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (1_800_000, "1.8 MB"),
        (9_940_000, "9.9 MB"),
        (10_000_000, "10 MB"),
        (24e6, "24 MB"),
        (999e6, "999 MB"),
        (1e9, "1.0 GB"),
        (1.66e12, "1,660.0 GB"),
    ],
)
def test_a_size_has_two_digits_or_more(size_bytes: float, text: str) -> None:
    """Megabytes have a decimal below ten, gigabytes always."""
    assert _size(size_bytes) == text
    assert _about(size_bytes) == f"about {text}"


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
    assert "taken to need 10 ms, not measured either" in text
    assert "Times are assumptions, not measurements" in text


def test_idle_devices_are_noted_only_where_there_are_any() -> None:
    """Eight micro-batches keep eight devices busy."""
    for devices, idle in ((8, False), (9, True)):
        result = forecast(WMT14, [BASE], Hardware("gpu", "H100 SXM", devices, GPUS["h100"]), Path())
        assert any(note.startswith(f"Of the {devices} devices a training uses 8") for note in notes(result)) is idle


def test_the_paper_s_devices_have_the_paper_s_rate_in_the_notes() -> None:
    """The rate behind the cost is footnote 5's for a P100, and the published one for others."""
    p100 = notes(forecast(WMT14, [BASE], Hardware("gpu", "P100", 8, GPUS["p100"]), Path()))[0]
    h100 = notes(forecast(WMT14, [BASE], Hardware("gpu", "H100 SXM", 8, GPUS["h100"]), Path()))[0]
    assert p100.endswith("The paper's way: time × devices × 9.5 TFLOP/s.")
    assert h100.endswith("The paper's way: time × devices × 989 TFLOP/s.")
