"""Checks and measures this project on a GPU, step by step, and prints a line for each: `make gpu`.

python -m benchmarks.gpu --out build/gpu
python -m benchmarks.gpu --steps tests,train-base-8-compiled    # only these
python -m benchmarks.gpu --device cpu --quick                   # tries the steps themselves, tiny

Steps are its rate of matrix products, the tests marked `gpu`, and our training step with the paper's base and big in 1
and 8 micro-batches, plain and compiled. Each writes what it measured to `<out>/<step>.json` when it ends. Neither Ray
nor MLflow nor a network is needed. Translation is measured by `python -m benchmarks.decoding`, there too.
"""

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from benchmarks import training
from pipeline.errors import UserError
from pipeline.hardware import compiles, device_name, dtype_name, matmul_flop_s
from workflows.cli.console import console, help_text, run_app

ROOT = Path(__file__).parents[1]
TESTS = ("tests/model", "tests/pipeline/training/test_on_devices.py")
"""Where the tests with the marker `gpu` are that need neither Ray nor MLflow."""


def measure_rate(out: Path, device: str, quick: bool) -> dict[str, Any]:
    """Measures large matrix products in float32 and bfloat16, and whether layers compile."""
    rates = {dtype_name(dtype): matmul_flop_s(device, dtype) for dtype in (torch.bfloat16, torch.float32)}
    return {"device_name": device_name(device), "compiles": compiles(device), "matmul_flop_s": rates}


def run_tests(out: Path, device: str, quick: bool) -> dict[str, Any]:
    """Runs the tests marked `gpu`: on the GPU alone if there is one. Raises UserError if one fails."""
    # On a CPU compiling takes minutes; a GPU's share alone is what `make test` has not run.
    choice = ["-m", "gpu", "-k", "cuda"] if device == "cuda" else ["-m", "gpu and not slow"]
    paths = [f"{TESTS[0]}/test_dropout.py"] if quick else TESTS
    command = [sys.executable, "-m", "pytest", "-q", *choice, *paths]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    (out / "tests.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    summary = done.stdout.rstrip().rpartition("\n")[2]
    if done.returncode:
        raise UserError(f"{summary}; see {out / 'tests.log'}")
    return {"summary": summary}


def measure_training(
    out: Path, device: str, quick: bool, *, size: str, micro_batches: int, compiled: bool
) -> dict[str, Any]:
    """Runs `benchmarks.training` on our loop alone."""
    chosen = replace(training.SIZES["tiny" if quick else size], micro_batches=micro_batches)
    if quick:  # each part has to hold the longest pairs
        chosen = replace(chosen, cpu_batch_tokens=400 * micro_batches, gpu_batch_tokens=400 * micro_batches)
    settings = chosen.settings(device="gpu" if device == "cuda" else "cpu", compiled=compiled)
    return training.measure(chosen, settings, 1 if quick else 3, 1 if quick else 20, peers=False)


STEPS: dict[str, Callable[[Path, str, bool], dict[str, Any]]] = {
    "rate": measure_rate,
    "tests": run_tests,
    **{
        f"train-{size}-{n}-{'compiled' if compiled else 'plain'}": partial(
            measure_training, size=size, micro_batches=n, compiled=compiled
        )
        for size in ("base", "big")
        for n in (1, 8)
        for compiled in (False, True)
    },
}
SHOWN = ("device_name", "matmul_flop_s", "summary", "dtype", "tokens_s", "roofline_fraction", "peak_memory_gb")
"""Figures that are printed; the files have all."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("build/gpu"),
    steps: Annotated[str, typer.Option(help=f"Steps to run: {', '.join(STEPS)}.  [all]")] = "",
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="What to measure.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to try the steps themselves.")] = False,
) -> None:
    """Checks and measures this project on a GPU. Exits with 1 if a step fails."""
    chosen = [name for name in steps.split(",") if name] or [*STEPS]
    if wrong := [name for name in chosen if name not in STEPS]:
        raise UserError(f"--steps {wrong[0]}: choose some of {', '.join(STEPS)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no GPU here; --device cpu --quick tries the steps")
    out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in chosen:
        began_s = time.monotonic()
        try:
            figures = STEPS[name](out.absolute(), device, quick)
        except Exception as error:  # the other steps are worth running
            traceback.print_exc()
            failed, figures = True, {"failed": f"{type(error).__name__}: {error}"}
        (out / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        shown = (f"{key} {_text(figures[key])}" for key in SHOWN if key in figures)
        text = figures.get("failed") or ", ".join(shown)
        console.print(f"{name:24} {time.monotonic() - began_s:5.0f} s  {text}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _text(figure: Any) -> str:
    if isinstance(figure, dict):
        return " and ".join(f"{_text(value)} in {key}" for key, value in figure.items())
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.gpu")
