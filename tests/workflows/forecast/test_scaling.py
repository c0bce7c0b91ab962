"""Forecast of an update on more and more GPUs: the exchange by hand, the three plans, mistakes."""

import pytest

from tests.support.command_line import CommandLine
from workflows.forecast.hardware import find
from workflows.forecast.scaling import COUNTS, Links, Step, steps
from workflows.profiles import WMT14

LINKS = Links(node_bytes_s=100e9, network_bytes_s=10e9)
BASE = WMT14.for_pair("en-de").recipes["base"].training


@pytest.mark.parametrize(
    ("n_gpus", "by_hand_s"),
    [
        (1, 0.0),
        (2, 2 * 1 / 2 * 0.01),
        (8, 2 * 7 / 8 * 0.01),
        (16, 2 * 7 / 8 * 0.01 + 2 * 1 / 2 * 0.1),
        (64, 2 * 7 / 8 * 0.01 + 2 * 7 / 8 * 0.1),
    ],
)
def test_exchange_by_hand(n_gpus: int, by_hand_s: float) -> None:
    """1 GB by rings: within a node at 100 GB/s, then between nodes at 10 GB/s."""
    assert LINKS.exchange_s(n_gpus, 1e9) == pytest.approx(by_hand_s)


def test_plans_of_base() -> None:
    """Eight GPUs compute an eighth each; beyond, the plan as printed gains nothing, and the others are told."""
    found = list(steps(BASE, "wmt14", find(1, "h100"), LINKS))
    by_plan: dict[str, list[Step]] = {}
    for step in found:
        by_plan.setdefault(step.plan, []).append(step)
    printed = by_plan["as printed"]
    assert [step.n_gpus for step in printed] == list(COUNTS)
    one, eight, last = printed[0], printed[3], printed[-1]
    assert (one.gpu_tokens, eight.gpu_tokens, last.used) == (25_000, 3_125, 8)
    assert one.exchanging_s == 0
    assert eight.computing_s == pytest.approx(one.computing_s / 8)
    assert last.seconds == eight.seconds
    finer, larger = by_plan["cut finer"][-1], by_plan["larger updates"][-1]
    assert (finer.n_gpus, finer.update_tokens, finer.gpu_tokens) == (64, 25_000, 391)
    assert (larger.n_gpus, larger.update_tokens, larger.gpu_tokens) == (64, 200_000, 3_125)
    assert larger.computing_s == pytest.approx(eight.computing_s, rel=0.01)
    assert finer.exchanging_s == larger.exchanging_s > eight.exchanging_s


def test_overlapping_hides_what_the_backward_pass_covers() -> None:
    """An exchange shorter than the backward pass costs nothing; a longer one costs the rest."""
    short, long = (Step("as printed", 8, 8, 1, 1, computing_s=3.0, exchanging_s=s) for s in (1.5, 5.0))
    assert (short.overlapped_s, long.overlapped_s) == (3.0, 6.0)


def test_bfloat16_halves_the_exchange(command_line: CommandLine) -> None:
    """The table tells the bytes, the assumptions and all GPUs."""
    module = "workflows.forecast.scaling"
    plain, half = (command_line.here(module, f"--exchange={name}") for name in ("float32", "bfloat16"))
    assert plain.returncode == half.returncode == 0
    assert "252 MB exchanged in float32" in plain.stdout
    assert "126 MB exchanged in bfloat16" in half.stdout
    assert "40% of the GPU's published rate is assumed" in plain.stdout


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gpu=z80", "--gpu z80: choose one of p100"),
        ("--model=huge", "--model huge: choose one of base, big"),
        ("--exchange=int8", "--exchange int8: choose one of float32, bfloat16"),
    ],
)
def test_mistakes_are_one_line(command_line: CommandLine, option: str, message: str) -> None:
    """The line names the option."""
    done = command_line.here("workflows.forecast.scaling", option)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
