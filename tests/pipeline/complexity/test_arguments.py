"""The paper's verbal claims about layers: times of every layer in every round."""

import time
from pathlib import Path

import torch
from torch.nn.modules.module import register_module_forward_pre_hook, register_module_full_backward_hook

from pipeline.complexity.arguments import time_
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS
from pipeline.complexity.settings import ArgumentSettings, TimingSettings
from pipeline.store.artifact import Context

TIMED = ArgumentSettings(
    length=32, width=16, windows=(4, 8), window_length=64, attention_d_k=(4, 16), attention_heads=3, attention_length=24
)


def test_the_stage_times_every_layer_at_every_size(tmp_path: Path) -> None:
    """Each layer has one time per round, at the requested batch size. Additive attention keeps d_k numbers per pair of
    positions, dot products a few at any d_k."""
    before, shapes = torch.get_num_threads(), set()
    timing = TimingSettings(rounds=3, least_s=1e-6, batch=2, threads=1)
    with register_module_forward_pre_hook(lambda _layer, inputs: shapes.add(tuple(inputs[0].shape))):
        artifact = time_(Context(tmp_path), TIMED, timing)
    times = artifact.load()
    assert torch.get_num_threads() == before
    assert {(2, 32, 16), (2, 64, 16), (2, 3, 24, 4), (2, 3, 24, 16)} <= shapes
    assert tuple(times.kernels) == TIMED.kernels
    assert tuple(times.windows) == TIMED.windows
    assert tuple(times.heads) == TIMED.heads
    assert tuple(times.functions) == ATTENTION_FUNCTIONS
    sweeps = (times.kernels, times.windows, times.heads, *times.functions.values())
    for measured in (times.recurrent, *(of for sweep in sweeps for of in sweep.values())):
        assert len(measured.rounds_s) == 3
        assert 0 < min(measured.rounds_s) <= measured.median_s <= max(measured.rounds_s)
        assert measured.peak_bytes > 0
    pairs_bytes = 4 * 2 * 3 * 24 * 24
    for function, by_d_k in times.functions.items():
        assert tuple(by_d_k) == (4, 16)
        grown_bytes = by_d_k[16].peak_bytes - by_d_k[4].peak_bytes
        assert (grown_bytes > 12 * pairs_bytes) == (function == "additive")
    assert times.heads[16].peak_bytes > times.heads[1].peak_bytes
    assert (times.device, times.threads, artifact.summary) == ("cpu", 1, times.device_name)


def test_a_time_is_that_of_both_passes(tmp_path: Path) -> None:
    """Slower backward passes slow down every measured time."""
    timing = TimingSettings(rounds=2, least_s=1e-6, batch=1, threads=1)
    with register_module_full_backward_hook(lambda *_: time.sleep(0.02)):
        times = time_(Context(tmp_path), TIMED, timing).load()
    sweeps = (times.kernels, times.windows, times.heads, *times.functions.values())
    assert all(measured.median_s >= 0.02 for sweep in sweeps for measured in sweep.values())
