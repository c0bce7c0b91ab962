import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from model.config import TransformerConfig
from model.flops import training_flop
from pipeline import environment
from pipeline.corpora.lengths import LENGTHS, draw_lengths
from pipeline.hardware import device_name
from pipeline.settings import TrainingSettings
from pipeline.store.store import Store
from pipeline.text.batching import plan_epoch
from tests.support.command_line import CommandLine
from tests.support.tiny_records import trained_on
from workflows import forecast
from workflows.forecast import _finished, _key, _run
from workflows.profiles.translation import MULTI30K, WMT14

FORECAST = "workflows.cli", "forecast", "table2"


def test_operations_are_those_of_an_epoch_of_the_same_pairs() -> None:
    small = TransformerConfig(vocabulary_size=100, n_layers=1, d_model=8, d_ff=16, n_heads=2, d_k=4, d_v=4)
    training = TrainingSettings(model=small, budget_tokens=2000, updates=1)
    source, target = draw_lengths(LENGTHS["multi30k"], LENGTHS["multi30k"].pairs, np.random.default_rng(1))
    updates = len(plan_epoch(source, target, training, epoch=0))
    run = _run(MULTI30K, "m", "en-de", training, 1, 1, "h200", {})
    assert run.flop == pytest.approx(training_flop(small, source, target) / updates, rel=0.005)
    assert run.seconds is None  # narrower than any model that was measured


def test_the_papers_base_and_a_counted_run() -> None:
    base = _run(WMT14, "base", "en-de", WMT14.recipes["base"].training, 1, 1, "h200", {})
    assert 0.97 < base.flop / (6 * 63_045_632 * 25_000 * 100_000) < 1.12  # six operations a weight and token
    multi30k = _run(MULTI30K, "base", "en-de", MULTI30K.recipes["base"].training, 1, 1, "h200", {})
    # Counted in a run of 1,187 tokens an update; an update of 22.7 thousand was measured on an H200.
    assert multi30k.flop == pytest.approx(1.657e14 * 1250 / 1187, rel=0.03)
    assert base.seconds == pytest.approx(100_000 * 0.0604 * 25.0 / 22.7, rel=0.02)


def test_a_run_of_the_same_settings_is_its_own_forecast() -> None:
    training = WMT14.recipes["base"].training
    run = _run(WMT14, "base", "en-de", training, 1, 0, None, {_key(training.model_copy(update={"seed": 7})): 123.0})
    assert (run.seconds, run.measured) == (123.0, True)


def test_a_forecast_has_the_missing_runs_and_writes_nothing(tmp_path: Path, command_line: CommandLine) -> None:
    named = ["--profile", "wmt14", "--pairs", "en-de", "--store", str(tmp_path / "new")]
    shown = command_line.here(*FORECAST, *named, "--gpus", "8", "--gpu", "H100").stdout
    assert "Forecast for 8 × H100" in shown
    (total,) = re.findall(r"^total .* (\d+ h \d+ min)", shown, re.MULTILINE)
    assert total
    (disk,) = re.findall(r"^disk: about (\S+) GB; .* free$", shown, re.MULTILINE)
    (runs,) = re.findall(r"^total .* (\S+) GB", shown, re.MULTILINE)
    assert float(disk) - float(runs) == pytest.approx(2.0 + 1.7, abs=0.2)  # text and token ids, and downloads
    assert not (tmp_path / "new").exists()


def test_a_resumed_run_took_all_its_sessions(tmp_path: Path) -> None:
    one = trained_on(device_name("cpu"), train_s=100.0, loop_s=5.0)
    (folder := tmp_path / "store" / "training-1").mkdir(parents=True)
    (folder / "run.json").write_text(one.model_dump_json())
    assert [seconds for _, seconds in _finished(Store(tmp_path))] == [100.0]


def test_a_quota_and_what_else_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine) -> None:
    """As many runs at once as Ray has CPUs, not threads of the machine. Widths that were not measured have no time."""
    monkeypatch.setattr(environment, "_cpu_quotas", lambda: iter([2.0]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(64)}, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (999.4, 0.0, 0.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    options = ["--seeds", "10", "--store", str(tmp_path / "new")]
    shown = " ".join(command_line.here(*FORECAST, "--pairs", "en-de", *options).stdout.split())
    assert "Times are of 2 runs at once" in shown
    assert f"busy (load 999 on {os.cpu_count()} CPUs)" in shown
    narrow = command_line.here(*FORECAST[:2], "table3", *options, "--set", "grid.training.model.d_model=16").stdout
    assert re.search(r"^total .* unknown ", narrow, re.MULTILINE)
    assert "more than" not in narrow


def test_too_small_a_disk_is_told(tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "COPIES", 10**9)
    shown = command_line.here(*FORECAST, "--gpu", "h100", "--store", str(tmp_path)).stdout
    assert "\nWARNING: not enough disk: about" in shown
