"""Measures this project on a GPU, step by step, and prints a line for each: `make gpu`.

python -m benchmarks.gpu --out build/gpu
python -m benchmarks.gpu --steps rate,train-base-8-compiled    # only these
python -m benchmarks.gpu --device cpu --quick                   # tries the steps themselves, tiny

Steps are its rate of matrix products; our training step with the paper's base and big in 1 and 8 micro-batches, in each
of FORMS; base and big beside other libraries; and, where Ray is installed, training and decoding through it. A step's
figures are in `<out>/<step>.json`, all of them in `<out>/table.md`, which says in which form this card trains fastest.
Only the last step needs Ray, none MLflow or a network. Translation is measured by `python -m benchmarks.decoding`.
"""

import json
import shutil
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any, Literal

import torch
import typer

from benchmarks import gpu_on_ray, training
from benchmarks.contenders import is_installed
from pipeline.errors import UserError
from pipeline.hardware import compiles, device_name, dtype_name, matmul_flop_s
from workflows.cli.console import console, help_text, run_app

FORMS = ("plain", "compiled", "captured", "compiled-captured", "padded", "padded-compiled")
"""Ways to compute the same updates; all but the padded ones are packed."""
CASES = [(size, micro_batches) for size in ("base", "big") for micro_batches in (1, 8)]
"""What each form is measured on."""


def measure_rate(device: str, quick: bool) -> dict[str, Any]:
    """Measures large matrix products in float32 and bfloat16, and whether layers compile."""
    rates = {dtype_name(dtype): matmul_flop_s(device, dtype) for dtype in (torch.bfloat16, torch.float32)}
    return {"device_name": device_name(device), "compiles": compiles(device), "matmul_flop_s": rates}


def measure_training(device: str, quick: bool, *, size: str, micro_batches: int, form: str) -> dict[str, Any]:
    """Runs `benchmarks.training`: our loop in one form or, if that is "auto", as it is by default beside the peers."""
    chosen = replace(training.SIZES["tiny" if quick else size], micro_batches=micro_batches)
    if quick:  # each part has to hold the longest pairs
        chosen = replace(chosen, cpu_batch_tokens=400 * micro_batches, gpu_batch_tokens=400 * micro_batches)
    settings = chosen.settings(device="gpu" if device == "cuda" else "cpu")
    if form != "auto":
        parts = form.split("-")
        switches = {"packed": "padded" not in parts, "compiled": "compiled" in parts, "captured": "captured" in parts}
        settings = settings.model_copy(update=switches)
    return training.measure(chosen, settings, 1 if quick else 3, 1 if quick else 20, peers=form == "auto")


def measure_ray(device: str, quick: bool) -> dict[str, Any]:
    """Trains and decodes through Ray, or says that it is not there."""
    return gpu_on_ray.measure(device == "cuda") if is_installed("ray") else {"skipped": "Ray is not installed"}


STEPS: dict[str, Callable[[str, bool], dict[str, Any]]] = {
    "rate": measure_rate,
    **{
        f"train-{size}-{n}-{form}": partial(measure_training, size=size, micro_batches=n, form=form)
        for size, n in CASES
        for form in FORMS
    },
    **{f"peers-{size}": partial(measure_training, size=size, micro_batches=8, form="auto") for size in ("base", "big")},
    "ray": measure_ray,
}


def fastest_form(rates: Mapping[str, float]) -> str:
    """Returns the form with the greatest geometric mean over all cases, by rates of steps; "" if none has them all."""
    steps = {form: [f"train-{size}-{n}-{form}" for size, n in CASES] for form in FORMS}
    means = {
        form: geometric_mean(rates[step] for step in of_form)
        for form, of_form in steps.items()
        if all(step in rates for step in of_form)
    }
    return max(means, key=means.__getitem__, default="")


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the trainings that were measured as a Markdown table, and the fastest form below it."""
    lines = ["| step | target tokens/s | roofline | peak GB | CUDA graph |", "|---|---|---|---|---|"]
    for step, figures in results.items():
        if "failed" in figures:
            lines.append(f"| {step} | failed: {figures['failed']} | | | |")
        elif "tokens_s" in figures:
            rate, share = f"{figures['tokens_s']:,.0f}", f"{figures['roofline_fraction']:.0%}"
            lines.append(f"| {step} | {rate} | {share} | {figures['peak_memory_gb']:.1f} | {figures['captured']} |")
    fastest = fastest_form({step: figures["tokens_s"] for step, figures in results.items() if "tokens_s" in figures})
    return "\n".join([*lines, "", f"Fastest form over all cases: {fastest or 'not measured'}", ""])


def card_in_machine() -> str:
    """Returns by what an NVIDIA card shows that it is in this machine, whatever torch sees; empty if by nothing."""
    if Path("/dev/nvidia0").exists():
        return "/dev/nvidia0"
    for command, sign in (("nvidia-smi -L", "GPU 0"), ("lspci", "NVIDIA")):
        words = command.split()
        if shutil.which(words[0]) and sign in subprocess.run(words, capture_output=True, text=True, check=False).stdout:
            return command
    return ""


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
        if card := card_in_machine():
            raise UserError(f"{card} shows a GPU that torch {torch.__version__} cannot use; install one for its driver")
        raise UserError("--device cuda: torch finds no GPU here; --device cpu --quick tries the steps")
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for name in chosen:
        began_s = time.monotonic()
        try:
            results[name] = STEPS[name](device, quick)
        except Exception as error:  # the other steps are worth running
            traceback.print_exc()
            results[name] = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
        (out / f"{name}.json").write_text(json.dumps(results[name], indent=2) + "\n", encoding="utf-8")
        (out / "table.md").write_text(table(results), encoding="utf-8")
        text = results[name].get("failed") or json.dumps(results[name])
        console.print(f"{name:24} {time.monotonic() - began_s:5.0f} s  {text}", highlight=False, soft_wrap=True)
    if any("failed" in figures for figures in results.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.gpu")
