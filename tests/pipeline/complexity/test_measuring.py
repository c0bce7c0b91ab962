"""Counts and measurements of the layer types: FLOP without computing, and times in rounds."""

import os
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from model.banded import count_pairs
from pipeline.complexity.count import count
from pipeline.complexity.measure import measure
from pipeline.complexity.records import CountsArtifact
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, LayerType, SweepSettings, TimingSettings
from pipeline.context import Context
from pipeline.errors import UserError
from tests.support.contexts import new_context

SETTINGS = LayerSettings(kernel=3, window=4)
SWEEP = SweepSettings(lengths=(8, 16, 32), width=4, widths=(2, 4, 8), separable_widths=(6, 10, 12), length=16)
TIMING = TimingSettings(rounds=2, least_s=1e-6, batch=3, threads=1)


def forward_flop(layer_type: LayerType, settings: LayerSettings, length: int, width: int) -> int:
    """Counts one forward pass over one sequence of `length` positions (the paper's n)."""
    n, d, k = length, width, settings.kernel
    match layer_type:
        case "self-attention":
            return 2 * (2 * n * n * d)  # Q Kᵀ, and the weights with V
        case "recurrent":
            return 2 * (2 * n * d * d)  # W x_t and U h_{t-1}
        case "convolutional":
            return 2 * (k * n * d * d)
        case "restricted self-attention":
            return 2 * (2 * count_pairs(n, settings.window) * d)
        case "separable convolution":
            return 2 * (k * n * d + n * d * d)


def swept(layer_type: LayerType) -> list[tuple[int, int]]:
    widths = [6, 10, 12] if layer_type == "separable convolution" else [2, 8]  # 4 is in the sweep over n, too
    return [(8, 4), (16, 4), (32, 4), *((16, width) for width in widths)]


@pytest.fixture
def counted(tmp_path: Path) -> CountsArtifact:
    return count(new_context(tmp_path / "counts"), SETTINGS, SWEEP)


def test_the_stages_count_and_measure_every_type_at_every_size(tmp_path: Path, counted: CountsArtifact) -> None:
    before, rounds, shapes = torch.get_num_threads(), list[dict[str, object]](), set()
    with register_module_forward_pre_hook(lambda _layer, inputs: shapes.add(inputs[0].shape)):
        artifact = measure(Context(tmp_path, emit=rounds.append), counted, SETTINGS, SWEEP, TIMING)
    measured = artifact.load()
    assert {shape[0] for shape in shapes if shape[1:] == (16, 4)} == {TIMING.batch}
    assert torch.get_num_threads() == before
    assert [event["done"] for event in rounds if event["unit"] == "rounds"] == [0, 1]
    assert [layer.name for layer in counted.load().layers] == list(LAYER_TYPES)
    for each in counted.load().layers:
        assert [(size.length, size.width) for size in each.sizes] == swept(each.name)
        for n, d, flop in [(size.length, size.width, size.counted_flop) for size in each.sizes]:
            assert flop == forward_flop(each.name, SETTINGS, n, d)
    assert [layer.name for layer in measured.layers] == list(LAYER_TYPES)
    for layer in measured.layers:
        assert [(size.length, size.width) for size in layer.sizes] == swept(layer.name)
        for size in layer.sizes:
            assert len(size.rounds_s) == 2
            assert min(size.rounds_s) > 0
    assert (measured.device, measured.threads, measured.dtype) == ("cpu", 1, "float32")
    assert artifact.summary == measured.device_name


def test_a_busy_machine_is_a_warning(
    tmp_path: Path, counted: CountsArtifact, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (999.4, 0.0, 0.0))
    measure(Context(tmp_path), counted, SETTINGS, SWEEP, TIMING)
    assert "other programs ran during the measurement (load 999 on " in caplog.text


def test_a_gpu_that_is_not_there_is_reported(tmp_path: Path, counted: CountsArtifact) -> None:
    with pytest.raises(UserError, match="no GPU to measure on; choose --profile cpu"):
        measure(Context(tmp_path), counted, SETTINGS, SWEEP, TIMING.model_copy(update={"device": "gpu"}))
