"""What the paper argues of layers in words: counts against theory, and times of every layer in every round."""

import time
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook, register_module_full_backward_hook

from model.transformer import sinusoids
from pipeline.complexity.arguments import count, one_sided_path, products, rotation, rotation_error, time_
from pipeline.complexity.exponents import fit
from pipeline.complexity.figures import ArgumentCounts, CountedArguments
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS
from pipeline.complexity.settings import ArgumentSettings, PathSettings, TimingSettings
from pipeline.store.artifact import Context

TIMED = ArgumentSettings(
    length=32, width=16, windows=(4, 8), window_length=64, attention_d_k=(4, 16), attention_heads=3, attention_length=24
)


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> ArgumentCounts:
    """All figures, at small sizes."""
    settings = ArgumentSettings(
        length=48,
        width=16,
        windows=(3, 6, 12, 24),
        window_length=96,
        full_kernels=(9, 33, 129),
        full_kernel_widths=(8, 32, 128),
        paths=PathSettings(lengths=(9, 10), width=4),
        path_kernels=(3,),
        products_d_k=(4,),
        queries=64,
        positions=50,
        offsets=(7,),
    )
    return count(Context(tmp_path_factory.mktemp("counted")), settings).load()


def test_flop_over_k_and_h(counts: ArgumentCounts) -> None:
    """A convolution costs k / 2 recurrent layers, which have two products at a position; heads cost nothing."""
    settings = counts.settings
    assert tuple(counts.kernels_flop) == settings.kernels
    for kernel, flop in counts.kernels_flop.items():
        assert Fraction(flop, counts.recurrent_flop) == Fraction(kernel, 2)
    assert tuple(counts.heads_flop) == settings.heads
    n, d = settings.length, settings.width
    assert set(counts.heads_flop.values()) == {2 * (2 * n**2 * d + 4 * n * d**2)}


def test_flop_over_r(counts: ArgumentCounts) -> None:
    """Blocks of r queries see 2r - 1 keys."""
    assert counts.windows_flop == {r: 4 * 96 * (2 * r - 1) * 16 for r in (3, 6, 12, 24)}


def test_a_separable_convolution_with_full_kernels_costs_no_more_than_attention(counts: ArgumentCounts) -> None:
    """2(n²d + nd²) beside 2(2n²d + nd²): never more, never less than half."""
    assert len(counts.full_kernels) == 9
    for size in counts.full_kernels:
        n, d = size.length, size.width
        assert Fraction(size.attention_flop, size.separable_flop) == Fraction(2 * n + d, n + d)


@pytest.mark.parametrize("kernel", [3, 7])
def test_one_sided_paths_are_logarithms_to_the_base_k(kernel: int) -> None:
    """One layer sees k positions, two k²: ceil(log_k n) layers at every n, also right before and after a power of k."""
    lengths = (kernel, kernel + 1, kernel**2 - 1, kernel**2, kernel**2 + 1)
    assert [one_sided_path(n, 4, kernel) for n in lengths] == [1, 2, 2, 2, 3]


def test_the_stage_counts_paths_products_and_positions(counts: ArgumentCounts) -> None:
    """By k and n, d_k and offset."""
    assert counts.one_sided_path == {3: {9: 2, 10: 3}}
    assert counts.softmax.keys() == {4}
    assert counts.positions.keys() == {7}
    assert counts.positions[7] < 1e-6


def test_products_have_the_variance_d_k_and_saturate_the_softmax() -> None:
    """Footnote 4; unscaled, its gradients vanish as d_k grows, and scaled they stay."""
    torch.manual_seed(2)
    counted = {d_k: products(4096, 16, d_k) for d_k in (16, 64, 256)}
    assert fit([(d_k, of.variance) for d_k, of in counted.items()]).value == pytest.approx(1, abs=0.02)
    assert [of.variance / d_k for d_k, of in counted.items()] == pytest.approx([1, 1, 1], abs=0.03)
    unscaled, scaled = zip(*((of.gradient_norm, of.scaled_gradient_norm) for of in counted.values()), strict=True)
    assert unscaled[0] > 1.3 * unscaled[1] > 1.3**2 * unscaled[2]
    assert max(scaled) < 1.02 * min(scaled)


def test_the_norm_is_that_of_the_softmax_at_its_products() -> None:
    """For large d_k, scaled products are normal numbers; their diag(p) - p pᵀ is worked out here."""
    torch.manual_seed(3)
    p_NM = torch.randn(4096, 16, dtype=torch.float64).softmax(1)
    squares_N = p_NM.pow(2).sum(1) - 2 * p_NM.pow(3).sum(1) + p_NM.pow(2).sum(1) ** 2
    assert products(4096, 16, 512).scaled_gradient_norm == pytest.approx(float(squares_N.sqrt().mean()), rel=0.02)


def test_positions_are_rotated() -> None:
    """To 1e-6 far beyond training's positions; turned the other way, M_k leads back, and nowhere near PE(pos + k)."""
    m_DD = rotation(16, 5)
    assert rotation_error(4000, 16, 5) < 1e-6
    before_PD, after_PD = sinusoids(4000, 16).double(), sinusoids(4000, 16, first=5).double()
    assert (before_PD @ m_DD - after_PD).abs().max() > 1
    torch.testing.assert_close(after_PD @ m_DD, before_PD, rtol=0, atol=1e-6)


def test_the_stage_times_every_layer_at_every_size(tmp_path: Path) -> None:
    """As many times as rounds, of so many sequences as asked for; additive attention keeps d_k numbers for each pair of
    positions, dot products a few, whatever d_k is."""
    before, shapes = torch.get_num_threads(), set()
    timing = TimingSettings(rounds=3, least_s=1e-6, batch=2, threads=1)
    with register_module_forward_pre_hook(lambda _layer, inputs: shapes.add(tuple(inputs[0].shape))):
        artifact = time_(Context(tmp_path), CountedArguments(tmp_path), TIMED, timing)
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
    """Where every backward pass is made slow, every time has it in it."""
    timing = TimingSettings(rounds=2, least_s=1e-6, batch=1, threads=1)
    with register_module_full_backward_hook(lambda *_: time.sleep(0.02)):
        times = time_(Context(tmp_path), CountedArguments(tmp_path), TIMED, timing).load()
    sweeps = (times.kernels, times.windows, times.heads, *times.functions.values())
    assert all(measured.median_s >= 0.02 for sweep in sweeps for measured in sweep.values())
