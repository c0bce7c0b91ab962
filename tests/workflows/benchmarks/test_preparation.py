"""workflows.benchmarks.preparation: the command on a little text gives consistent figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from workflows.benchmarks.preparation_rates import measure

COMMAND = [sys.executable, "-m", "workflows.cli", "bench", "prepare"]


def test_figures_are_consistent(tmp_path: Path, ray_cluster: None) -> None:
    """Every stage reports time and memory, the rates follow from the times, and no file is left behind."""
    shown: list[str] = []
    result = measure(8000, 20_000, 2000, tmp_path, shown.append)
    assert list(tmp_path.iterdir()) == []
    assert list(result["stages"]) == ["read", "clean", "learn", "encode"]
    for rates in result["stages"].values():
        assert rates["pairs_s"] == pytest.approx(8000 / rates["seconds"])
        assert 0.05 < rates["peak_task_memory_gb"] <= result["peak_task_memory_gb"] < 1.5
    assert sum(rates["seconds"] for rates in result["stages"].values()) < result["seconds"]
    assert result["ratio_sentencepiece"] == pytest.approx(result["pairs_s"] / result["sentencepiece_pairs_s"])
    assert 3 * 8000 * 250 < result["disk_gb"] * 1e9 < (8000 + 2000) * 1300, "three copies of the text, and ids"
    assert result["plan"]["pairs"] == 20_000
    assert 0 < result["plan"]["padding_fraction"] < 0.2
    assert result["reading"]["ratio_gpu"] > 0
    assert any("encode" in line for line in shown)


def test_too_small_a_disk_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    """The error names the space needed and the option that helps."""
    with pytest.raises(UserError, match=r"pairs take about .* --scratch"):
        measure(10**12, 1000, 2000, tmp_path, print)
    done = subprocess.run([*COMMAND, "--scratch", str(tmp_path / "none")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a folder" in done.stderr


@pytest.mark.slow
def test_the_command_prints_one_object(tmp_path: Path) -> None:
    """With --json the command prints one object for scripts to read."""
    arguments = ["--pairs", "8000", "--vocabulary-size", "2000", "--scratch", str(tmp_path), "--json"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert {"pairs_s", "ratio_sentencepiece", "peak_task_memory_gb", "disk_gb"} <= set(result)
