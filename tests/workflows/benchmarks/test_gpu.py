"""`make gpu`: its steps in tiny form on the CPU, without Ray and MLflow; what it skips, kills and leaves behind."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from workflows.benchmarks.gpu import __main__ as gpu
from workflows.benchmarks.gpu.__main__ import LONGEST_S, MOST_S, STEPS, Step
from workflows.benchmarks.gpu.measurements import run_tests
from workflows.benchmarks.gpu.results import StepResult, table

ROOT = Path(__file__).parents[3]
UNIMPORTABLE = ("ray", "mlflow", "scipy", "matplotlib", "adjustText", "nltk", "transformers", "ctranslate2")
"""The project's other libraries, which a machine that is only lent does not have."""
BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {UNIMPORTABLE}:
            raise ImportError(f"{{name}} is not to be imported")
sys.meta_path.insert(0, Blocker())
"""


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command with the libraries above made unimportable, in its own processes too."""
    (folder / "sitecustomize.py").write_text(BLOCKED)
    environment = {name: value for name, value in os.environ.items() if name != "AIAYN_DATA"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "200"}
    command = [sys.executable, "-m", "workflows.benchmarks.gpu", "--out", str(folder / "out"), *options]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def figures(folder: Path, step: str) -> dict[str, Any]:
    found = StepResult.read(folder / "out", step)
    assert found
    assert (found.status, found.reason) == ("done", "")
    return found.figures


def test_every_step_in_tiny_form_without_ray_and_mlflow(tmp_path: Path) -> None:
    """On the CPU each kind of step is done; its file has the figures, and the table a line for it."""
    steps = ["rate", "tests", "train-base-8-plain", "text", "decode"]
    done = run(tmp_path, "--device=cpu", "--quick", f"--steps={','.join(steps)}")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"│ {step} " in done.stdout for step in steps)
    assert min(figures(tmp_path, "rate")["matmul_flop_s"]["float32"]) > 1e8
    counts = figures(tmp_path, "tests")
    assert counts["passed"] >= 4
    assert counts["failed"] == 0
    bench = figures(tmp_path, "train-base-8-plain")
    assert (bench["micro_batches"], bench["compiled"]) == (8, False)
    (line,) = (tmp_path / "out" / "train-base-8-plain.rounds.jsonl").read_text().splitlines()
    assert json.loads(line)["target_tokens"] == bench["contenders"][0]["target_tokens"]
    assert (tmp_path / "out" / "train-base-8-plain.trace.json.gz").stat().st_size > 1000
    assert figures(tmp_path, "text")["updates"] == 4
    assert figures(tmp_path, "text")["sentences"] == 20
    same = figures(tmp_path, "decode")["same_as_cpu"]
    assert same["equal"] == same["sentences"] == 20


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_what_it_skips(tmp_path: Path) -> None:
    """All steps that need the card are skipped with the reason, and the exit status is 0."""
    steps = [name for name, step in STEPS.items() if step.needs_device]
    done = run(tmp_path, f"--steps={','.join(steps)}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("torch finds no CUDA device") == len(steps) == len(STEPS) - 1


def test_limits_are_kept_and_told(tmp_path: Path) -> None:
    """A step that takes too long is killed, keeps what it had written, and makes the exit status 1."""
    result = gpu._run(Step("rate", 0, partial(run_tests)), tmp_path, "cpu", None, quick=True)
    assert (result.status, result.reason) == ("timed out", "it took more than 0 s")
    assert StepResult.read(tmp_path, "rate") == result
    assert sum(step.limit_s for step in STEPS.values()) <= MOST_S
    assert all(step.limit_s <= LONGEST_S for step in STEPS.values())


def test_table_shows_what_there_is() -> None:
    """A step killed before its last figure has a line that says so, as has one that failed."""
    killed = StepResult("decode", "timed out", figures={"rates": []} | {"sentences": 3}, reason="it took too long")
    killed.figures.pop("rates")
    lines = [StepResult("rate", "failed", reason="no such device"), killed]
    assert [list(column.cells) for column in table(lines).columns] == [
        ["rate", "decode"],
        ["failed", "timed out"],
        ["0", "0"],
        ["no such device", "no rates yet; it took too long"],
    ]
