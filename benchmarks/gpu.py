"""Measures this project on a GPU, step by step, and prints a line for each: `make gpu`.

python -m benchmarks.gpu --out build/gpu
python -m benchmarks.gpu --steps rate,train-base-8-compiled    # only these
python -m benchmarks.gpu --device cpu --quick                   # tries the steps themselves, tiny

Steps are its rate of matrix products, and our training step with the paper's base and big in 1 and 8 micro-batches,
plain and compiled. Each prints what it measured when it ends, and writes it to `<out>/<step>.json`. Neither Ray nor
MLflow nor a network is needed. Translation is measured by `python -m benchmarks.decoding`, there too.
"""

import json
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


def measure_rate(device: str, quick: bool) -> dict[str, Any]:
    """Measures large matrix products in float32 and bfloat16, and whether layers compile."""
    rates = {dtype_name(dtype): matmul_flop_s(device, dtype) for dtype in (torch.bfloat16, torch.float32)}
    return {"device_name": device_name(device), "compiles": compiles(device), "matmul_flop_s": rates}


def measure_training(device: str, quick: bool, *, size: str, micro_batches: int, compiled: bool) -> dict[str, Any]:
    """Runs `benchmarks.training` on our loop only."""
    chosen = replace(training.SIZES["tiny" if quick else size], micro_batches=micro_batches)
    if quick:  # each part has to hold the longest pairs
        chosen = replace(chosen, cpu_batch_tokens=400 * micro_batches, gpu_batch_tokens=400 * micro_batches)
    settings = chosen.settings(device="gpu" if device == "cuda" else "cpu", compiled=compiled)
    return training.measure(chosen, settings, 1 if quick else 3, 1 if quick else 20, peers=False)


STEPS: dict[str, Callable[[str, bool], dict[str, Any]]] = {
    "rate": measure_rate,
    **{
        f"train-{size}-{n}-{'compiled' if compiled else 'plain'}": partial(
            measure_training, size=size, micro_batches=n, compiled=compiled
        )
        for size in ("base", "big")
        for n in (1, 8)
        for compiled in (False, True)
    },
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("build/gpu"),
    steps: Annotated[str, typer.Option(help=f"Steps to run: {', '.join(STEPS)}.  [all]")] = "",
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="What to measure.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to try the steps themselves.")] = False,
) -> None:
    """Measures this project on a GPU. Exits with 1 if a step fails."""
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
            figures = STEPS[name](device, quick)
        except Exception as error:  # the other steps are worth running
            traceback.print_exc()
            failed, figures = True, {"failed": f"{type(error).__name__}: {error}"}
        (out / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        text = figures.get("failed") or json.dumps(figures)
        console.print(f"{name:24} {time.monotonic() - began_s:5.0f} s  {text}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.gpu")
