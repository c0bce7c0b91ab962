"""Measures this project on a GPU in steps, and prints a table: `make gpu`.

python -m benchmarks.gpu --out build/gpu
python -m benchmarks.gpu --steps minute                         # only the first step
python -m benchmarks.gpu --device cpu --quick                   # tests the steps at tiny sizes

`minute` trains the paper's base for 20 updates in each of FORMS, in one process, and finds the largest pass that
fits in memory. The next three steps do the same with eight passes an update, and with big. The last two time both
models against other libraries.

`<out>/<step>.json` holds a step's results, `<out>/table.md` the table. `<out>/<step>-<form>.txt` lists the kernels of
three updates by time, and the `.json.gz` beside it is their trace, for https://ui.perfetto.dev. No step needs Ray,
MLflow or a network. `python -m benchmarks.decoding` measures translation.
"""

import gc
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from benchmarks import training
from benchmarks.synthetic import write_dataset
from benchmarks.training_loops import WARM_UP_UPDATES, OurLoop
from pipeline.artifacts import EncodedDataset
from pipeline.context import ignore
from pipeline.corpora.lengths import LENGTHS
from pipeline.environment import worker_environment
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.warning_events import emitting_warnings
from workflows.cli.console import App, console, help_text, run_app

Result = dict[str, Any]
FORMS: dict[str, Result] = {
    "auto": {},
    "plain": {"speed": "plain", "pass_tokens": 0},
    "float32": {"dtype": "float32", "pass_tokens": 0},
    "exact": {"exact_reduction": True},
}
"""Settings that change an update's speed, and its result by rounding. A single padded pass would be mostly padding."""
UPDATES, PROFILED_UPDATES, PEER_ROUNDS_UPDATES = 20, 3, (2, 10)
PAIRS = 40_000
"""The number of pairs: enough for 40 of the paper's updates."""
DOUBLINGS = {"cuda": 6, "cpu": 2}
"""The number of times the pass is doubled, by device."""
FORMATS = {"tokens_s": ",.0f", "update_s": ".4f", "roofline_fraction": ".0%", "peak_memory_gb": ".1f"}
FORMATS |= {"start_s": ".0f", "compile_s": ".0f"}
COLUMNS = (*FORMATS, "dtype", "packed", "compiled", "captured", "failed")
"""Columns of the table: keys of the results. `start_s` is the time to the end of the warm-up, including compilation
(`compile_s`), recording and checking a graph, and trying the largest passes."""


def measure_forms(size: str, passes: int, device: str, quick: bool, out: Path) -> Result:
    """Trains in each of FORMS; writes `<out>-<form>.txt` and `.json.gz`. Returns warnings with the results."""
    chosen, settings = _settings(size, passes, device, quick)
    result: Result = {"forms": {}}
    if device == "cuda":
        result["memory_gb"] = torch.cuda.get_device_properties(device).total_memory / 1e9
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder:
        lengths = replace(LENGTHS[chosen.lengths], pairs=2_000 if quick else PAIRS)
        dataset = write_dataset(Path(folder) / "dataset", lengths, chosen.model.vocabulary_size)
        for form, changes in FORMS.items():
            run = Path(folder) / form
            try:
                changed, warnings = settings.model_copy(update=changes), list[Result]()
                arguments = changed, dataset, run, 1 if quick else UPDATES
                measured = emitting_warnings(warnings.append, measure_form, *arguments)
                result["forms"][form] = {**measured, "warnings": [event["warning"] for event in warnings]}
            except Exception as error:
                result["forms"][form] = _failure(error)
            for file in run.glob("profile-*"):
                shutil.copyfile(file, f"{out}-{form}{''.join(file.suffixes)}")
        torch.use_deterministic_algorithms(False)  # the exact form turns it on
        arguments = settings.model_copy(update={"speed": "plain"}), dataset, run, DOUBLINGS[device]
        try:
            result["largest_pass_tokens"] = emitting_warnings(ignore, largest_pass, *arguments)
        except Exception as error:  # at the card's memory limit; keep the earlier results
            result["largest_pass_tokens"] = _failure(error)["failed"]
    return result


def measure_form(settings: TrainingSettings, dataset: EncodedDataset, folder: Path, updates: int) -> Result:
    """Times updates after a warm-up, then profiles up to PROFILED_UPDATES more, with files in `folder`."""
    _free_memory()
    n_profiled = min(updates, PROFILED_UPDATES)
    first = WARM_UP_UPDATES["cuda" if settings.device == "gpu" else "cpu"] + updates + 1
    profiled = settings.model_copy(update={"profile_updates": (first, first + n_profiled - 1)})
    began_s, compiled_s = time.perf_counter(), _compile_s()
    loop = OurLoop(profiled, dataset, folder)
    dtype = loop.warm_up()
    start_s = time.perf_counter() - began_s
    done = loop.round(updates)
    loop.training.train(until=loop.state.update + n_profiled)  # unlike a round, without measuring the roofline
    return {
        **loop.machine(),
        **done,
        "dtype": dtype,
        "start_s": start_s,
        "compile_s": _compile_s() - compiled_s,
        "update_s": done["seconds"] / updates,
        "tokens_s": done["target_tokens"] / done["seconds"],
        "roofline_fraction": done["counted_flop"] / done["seconds"] / done["matmul_flop_s"],
    }


def largest_pass(settings: TrainingSettings, dataset: EncodedDataset, folder: Path, doublings: int) -> int:
    """Returns the tokens per side of the largest pass that fits, by doubling that of `settings`."""
    fitting = 0
    for tokens in (settings.pass_tokens << n for n in range(doublings + 1)):
        _free_memory()
        changed = settings.model_copy(update={"pass_tokens": tokens, "budget_tokens": tokens})
        loop = OurLoop(changed, dataset, folder / str(tokens))
        loop.warm_up()
        if loop.training.updates.n_passes > 1:  # it does not fit
            return fitting
        fitting = tokens
        del loop  # the next one needs its memory
    return fitting


def measure_peers(size: str, device: str, quick: bool, out: Path) -> Result:
    """Runs `benchmarks.training` with the other libraries."""
    return training.measure(*_settings(size, 8, device, quick), *((1, 1) if quick else PEER_ROUNDS_UPDATES))


STEPS: dict[str, Callable[[str, bool, Path], Result]] = {
    "minute": partial(measure_forms, "base", 1),
    "base-8": partial(measure_forms, "base", 8),
    "big-1": partial(measure_forms, "big", 1),
    "big-8": partial(measure_forms, "big", 8),
    "peers-base": partial(measure_peers, "base"),
    "peers-big": partial(measure_peers, "big"),
}


def _settings(size: str, passes: int, device: str, quick: bool) -> tuple[training.Size, TrainingSettings]:
    chosen = training.SIZES["tiny" if quick else size]
    settings = chosen.settings(device="gpu" if device == "cuda" else "cpu")
    budget_tokens = 400 * passes if quick else settings.budget_tokens
    return chosen, settings.model_copy(update={"budget_tokens": budget_tokens, "pass_tokens": budget_tokens // passes})


def _failure(error: Exception) -> Result:
    """Prints a traceback and returns the error as a result, so that the other steps and forms run."""
    traceback.print_exception(error)
    return {"failed": " ".join(f"{type(error).__name__}: {error}".split())}


def _compile_s() -> float:
    """Returns this process's compilation time, in seconds."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.calculate_time_spent()["total_wall_time"] if dynamo else 0.0


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def rows(step: str, result: Result) -> list[str]:
    """Returns a Markdown row per form or library of a step."""
    named = result.get("forms") or {peer["name"]: peer for peer in result.get("contenders", [])} or {"": result}
    cells = [[form, *(_cell(done.get(key), FORMATS.get(key, "")) for key in COLUMNS)] for form, done in named.items()]
    return [f"| {step} | {' | '.join(row)} |" for row in cells]


def _cell(value: Any, spec: str) -> str:
    return "" if value is None else format(value, spec)


app = App()


@app.command(help=help_text(__doc__))
def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("build/gpu"),
    steps: Annotated[str, typer.Option(help=f"Steps to run: {', '.join(STEPS)}.  [all]")] = "",
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="What to measure.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to test the steps.")] = False,
) -> None:
    """Measure this project on a GPU. Exits with 1 if a step or a form fails."""
    chosen = [name for name in steps.split(",") if name] or [*STEPS]
    if wrong := [name for name in chosen if name not in STEPS]:
        raise UserError(f"--steps {wrong[0]}: choose from {', '.join(STEPS)}")
    if device == "cuda" and not torch.cuda.is_available():
        from workflows.cli import doctor

        found = doctor.gpu()
        raise UserError(f"--device cuda: {found.text}; {found.remedy or '--device cpu --quick tests the steps'}")
    out.mkdir(parents=True, exist_ok=True)
    # For the steps' processes. The last one is for the exact form, because cuBLAS reads it only once.
    os.environ.update({**worker_environment(), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    table = [f"| step | form | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    failed = False
    for name in chosen:
        began_s = time.monotonic()
        try:  # a separate process frees the GPU at its end
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                result = pool.submit(STEPS[name], device, quick, out / name).result()
        except Exception as error:
            result = _failure(error)
        result["step_s"] = time.monotonic() - began_s
        failed |= any(done.get("failed") for done in (result, *result.get("forms", {}).values()))
        table += rows(name, result)
        (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        (out / "table.md").write_text("\n".join(table) + "\n", encoding="utf-8")
        console.print("\n".join(table if name == chosen[0] else rows(name, result)), highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.gpu")
