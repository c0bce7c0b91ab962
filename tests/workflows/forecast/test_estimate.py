"""The forecast of --plan: operations, hours and disk against values computed by hand."""

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from model.config import TransformerConfig
from pipeline.corpora.lengths import LENGTHS, draw_lengths
from pipeline.settings import TrainingSettings
from pipeline.text.batching import plan_epoch
from workflows import reproduce_table2, reproduce_table3
from workflows.forecast.estimate import Forecast, Planned, forecast, render, threads_of, update_flop
from workflows.forecast.hardware import GPUS, Hardware
from workflows.profiles.translation import MULTI30K, WMT14

SMALL = TransformerConfig(vocabulary_size=100, n_layers=1, d_model=8, d_ff=16, n_heads=2, d_k=4, d_v=4)
WEIGHTS_PER_SOURCE_TOKEN = 4 * 8 * 8 + 2 * 8 * 16 + 2 * 8 * 8
"""Weights applied to a source token: attention, feed-forward, and the decoder's keys and values."""
WEIGHTS_PER_TARGET_TOKEN = 4 * 8 * 8 + 2 * 8 * 8 + 2 * 8 * 16 + 8 * 100
PRODUCTS_PER_QUERY_AND_KEY = 8 + 8
"""Products of queries with keys, and of attention weights with values."""
H100_8 = Hardware("gpu", "H100 SXM", 8, GPUS["h100"])


def _one(planned: Planned, hardware: Hardware = H100_8, store: Path = Path()) -> Forecast:
    return forecast(WMT14, [planned], hardware, store)


def _shown(result: Forecast) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(render(result))
    return file.getvalue()


def test_operations_of_an_update_are_those_of_a_plan() -> None:
    """The operations follow from weights counted by hand and the epoch plan of the pairs."""
    source, target = draw_lengths(LENGTHS["multi30k"], LENGTHS["multi30k"].pairs, np.random.default_rng(1))
    weighted = WEIGHTS_PER_SOURCE_TOKEN * source.sum() + WEIGHTS_PER_TARGET_TOKEN * target.sum()
    queries_and_keys = (source * source + target * target + source * target).sum()
    products = weighted + PRODUCTS_PER_QUERY_AND_KEY * queries_and_keys
    training = TrainingSettings(model=SMALL, budget_tokens=2000, micro_batches=2)
    plan = plan_epoch(source, target, training, epoch=0)
    assert update_flop(training, "multi30k") == pytest.approx(3 * 2 * products / len(plan), rel=0.005)


def test_the_papers_base_model_two_other_ways() -> None:
    """The count is close to six operations per weight and token, and to full updates of 25-token sentences."""
    (base,) = _one(Planned("base", "en-de", WMT14.recipes["base"].training)).trainings
    by_weights = 6 * base.parameters * 25_000 * 100_000
    assert 0.88 < base.counted_flop / by_weights < 1.02
    assert 0.88 < base.counted_flop / 9.5e17 < 1.02


def test_multi30k_is_forecast_as_it_was_measured() -> None:
    """The forecast is within 3% of 1.657e14, counted in a run of the profile's EN-DE base."""
    planned = Planned("base", "en-de", MULTI30K.recipes["base"].training)
    (base,) = forecast(MULTI30K, [planned], H100_8, Path()).trainings
    assert base.counted_flop == pytest.approx(1.657e14, rel=0.03)


@pytest.mark.parametrize(("devices", "used", "share"), [(1, 1, 1.0), (3, 3, 3 / 8), (8, 8, 1 / 8), (64, 8, 1 / 8)])
def test_time_is_that_of_the_device_with_most_micro_batches(devices: int, used: int, share: float) -> None:
    """Three devices compute 3, 3 and 2 of 8 micro-batches; more than 8 devices are not used."""
    hardware = replace(H100_8, devices=devices)
    (big,) = _one(Planned("big", "en-de", WMT14.recipes["big"].training), hardware).trainings
    assert big.devices == used
    assert big.seconds == pytest.approx(big.counted_flop * share / (0.22 * 989e12))


@pytest.mark.parametrize("name", ["base", "big"])
def test_the_page_has_the_forecast(name: str) -> None:
    """docs/wmt14.md has the forecast of the paper's models on 1 and 8 H100s, and the price at $3 an hour."""
    planned = Planned(name, "en-de", WMT14.recipes[name].training)
    seconds = [_one(planned, replace(H100_8, devices=gpus)).trainings[0].seconds or 0 for gpus in (1, 8)]
    updates = [f"{1000 * each / planned.training.updates:.1f}" for each in seconds]
    hours = [f"{each / 3600:.2g}" for each in seconds]
    row = f"| {name} | {' | '.join(updates + hours)} | ${3 * seconds[0] / 3600:.2g} |"
    assert row in (Path(__file__).parents[3] / "docs" / "wmt14.md").read_text(encoding="utf-8")


def test_no_time_is_forecast_for_narrow_models_on_a_gpu(tmp_path: Path) -> None:
    """Their fraction of the rate is unknown: the cell is empty, the total is a lower bound, and a note says so."""
    narrow = Planned("A1 of generated text", "en-de", TrainingSettings(model=SMALL))
    wide = Planned("base", "en-de", WMT14.recipes["base"].training)
    result = forecast(WMT14, [narrow, wide], H100_8, tmp_path)
    assert [training.seconds is None for training in result.trainings] == [True, False]
    shown = _shown(result)
    assert re.search(r"(?m)^total .*more than \d+ min \d\d s", shown)
    assert "No times for models narrower than 512" in " ".join(shown.split())
    assert "40%" not in _shown(forecast(WMT14, [narrow], H100_8, tmp_path))


@pytest.mark.parametrize(("workers", "threads", "used"), [(1, 2, 2), (2, 1, 2), (1, 1, 1), (0, 1, 4), (8, 2, 4)])
def test_a_training_on_cpus_has_the_rate_of_its_threads(workers: int, threads: int, used: int) -> None:
    """All workers' threads together, at most one per core, here 4."""
    training = TrainingSettings(model=SMALL, workers=workers, threads=threads)
    assert threads_of(training, n_cores=4) == used


@pytest.mark.parametrize("is_enough", [True, False])
def test_a_disk_that_does_not_suffice_is_a_warning(tmp_path: Path, is_enough: bool) -> None:
    """A line that begins with WARNING. With enough space, the sizes are printed."""
    result = _one(Planned("base", "en-de", WMT14.recipes["base"].training), store=tmp_path)
    shown = _shown(replace(result, free_bytes=int(result.disk_bytes) + (1 if is_enough else -1)))
    assert ("\nWARNING: not enough disk space" in shown) is not is_enough
    assert ("\ndisk: about" in shown) is is_enough


def test_disk_by_hand(tmp_path: Path) -> None:
    """Shared archives count once, text twice, ids take two bytes; 4 checkpoints, a recovery and two models stay."""
    training = TrainingSettings(model=SMALL, updates=40, checkpoint_updates=10)
    planned = [Planned(pair, pair, training, times=3) for pair in ("en-de", "en-fr")]
    result = forecast(WMT14, planned, H100_8, tmp_path / "not" / "there")
    german, french = result.texts
    assert german.downloads_bytes == 657632379 + 918311367 + 80418416
    assert french.downloads_bytes == 2595102720 + int(2.3 * 2**30)
    assert german.kept_bytes == pytest.approx(4_520_620 * (2 * 316 + 2 * (29.5 + 29.3) + 8), rel=0.01)
    parameters = result.trainings[0].parameters
    assert result.trainings[0].disk_bytes == 4 * (4 + 3 + 2) * parameters  # 4 checkpoints in 40 updates
    text_bytes = sum((text.downloads_bytes or 0) + (text.kept_bytes or 0) for text in result.texts)
    assert result.disk_bytes == pytest.approx(text_bytes + 6 * result.trainings[0].disk_bytes)
    assert result.free_bytes > 0
    assert result.total("counted_flop") == pytest.approx(3 * sum(one.counted_flop for one in result.trainings))


def test_what_is_shown_says_what_is_assumed(tmp_path: Path) -> None:
    """Nothing is cut off at 120 columns. Estimates, assumptions and idle devices are noted."""
    planned = [Planned(f"en-de {name}", "en-de", recipe.training) for name, recipe in WMT14.recipes.items()]
    shown = _shown(forecast(WMT14, planned, replace(H100_8, devices=16), tmp_path))
    assert "16 × H100 SXM: 989 TFLOP/s in bfloat16 each, published" in shown
    assert "about 3.4 GB with token ids; download: about 1.7 GB." in " ".join(shown.split())
    words = " ".join(shown.split())
    assert "15% and 22% of the rate, measured for base on one H200" in words
    assert "A run uses only 8 of 16 devices" in words
    assert "…" not in shown
    assert max(map(len, shown.split("\n"))) <= 120


def test_the_plan_of_both_tables_ends_in_the_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real commands forecast every run on the named hardware and write nothing."""
    named = {"plan": True, "profile": "wmt14", "gpus": 8, "gpu": "h100", "store": tmp_path / "new"}
    reproduce_table2.main(**named)
    shown = capsys.readouterr().out
    assert "stages to run" in shown.split("Forecast for 8 × H100 SXM")[0]
    beneath = shown.split("Forecast for")[1]
    for training in ("en-de base", "en-de big", "en-fr base", "en-fr big"):
        assert training in beneath
    reproduce_table3.main(asked="base,A", seeds=2, **named)
    beneath = capsys.readouterr().out.split("Forecast for")[1]
    for row in ("base", "A1", "A2", "A3", "A4"):
        assert f"en-de {row}, 2 seeds, each" in beneath
    assert not (tmp_path / "new").exists()
