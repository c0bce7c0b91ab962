"""Checks and measures this project on a GPU, step by step, and prints one table: `make gpu`.

    python -m workflows.benchmarks.gpu --out build/gpu
    python -m workflows.benchmarks.gpu --steps tests,train-base-8-compiled    # these alone; the table has all results
    python -m workflows.benchmarks.gpu --device cpu --quick                   # tries the steps themselves, tiny

Each step runs in a process of its own under a time limit, and writes what it has measured to `<out>/<step>.json` as
soon as it knows it; its output is in `<out>/<step>.log`. All steps together take at most 30 minutes. Without a GPU the
steps that need one are skipped. Neither Ray nor MLflow nor a network is needed.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError
from workflows.benchmarks.gpu.measurements import (
    ROOT,
    SkipStepError,
    Workplace,
    measure_decoding,
    measure_rate,
    measure_training,
    run_tests,
    train_on_text,
)
from workflows.benchmarks.gpu.results import OK, StepResult, table
from workflows.console.command import console, run_app
from workflows.console.options import one_of


@dataclass(frozen=True)
class Step:
    """A part of the run."""

    name: str
    limit_s: int
    measure: Callable[[Workplace], None]
    needs_device: bool = True


def _training_steps() -> list[Step]:
    return [
        Step(
            f"train-{size}-{micro_batches}-{'compiled' if compiled else 'plain'}",
            120 if compiled else 70,
            partial(measure_training, size=size, micro_batches=micro_batches, compiled=compiled),
        )
        for size in ("base", "big")
        for micro_batches in (1, 8)
        for compiled in (False, True)
    ]


STEPS = {
    step.name: step
    for step in (
        Step("rate", 90, measure_rate),
        Step("tests", 330, run_tests, needs_device=False),
        *_training_steps(),
        Step("text", 420, train_on_text),
        Step("decode", 180, measure_decoding),
    )
}
MOST_S, LONGEST_S = 1800, 540
"""Limits on all steps together and on one."""


def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("build/gpu"),
    steps: Annotated[str, typer.Option(help=f"Steps to run, separated by commas: {', '.join(STEPS)}.  [all]")] = "",
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    data: Annotated[
        Path | None, typer.Option(envvar="AIAYN_DATA", help="Folder with multi30k/; otherwise the text is generated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to try the steps themselves.")] = False,
    inside: Annotated[bool, typer.Option("--inside", hidden=True)] = False,
) -> None:
    """Check and measure this project on a GPU, in steps of limited time."""
    one_of("--device", device, ("cuda", "cpu"))
    chosen = [STEPS[one_of("--steps", name, list(STEPS))] for name in steps.split(",") if name] or list(STEPS.values())
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if inside:
        _run_here(chosen[0], Workplace(StepResult(chosen[0].name, "running", _now()), out, device, quick, data))
        return
    results = [_run(step, out, device, data, quick) for step in chosen]
    console.print(table([found for name in STEPS if (found := StepResult.read(out, name))]))
    if any(result.status not in OK for result in results):
        raise typer.Exit(1)


def _run(step: Step, out: Path, device: str, data: Path | None, quick: bool) -> StepResult:
    """Runs a step in a process of its own, and ends it and all its processes at the time limit."""
    import torch

    if step.needs_device and device == "cuda" and not torch.cuda.is_available():
        result = StepResult(step.name, "skipped", _now(), reason="torch finds no CUDA device")
        result.write(out)
        return result
    console.print(f"{step.name}: at most {step.limit_s} s", highlight=False)
    options = ["--steps", step.name, "--out", str(out), "--device", device, "--inside"]
    options += [*(["--data", str(data.absolute())] if data else []), *(["--quick"] if quick else [])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    StepResult(step.name, "running", _now()).write(out)
    began_s, reason = time.monotonic(), ""
    with (out / f"{step.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workflows.benchmarks.gpu", *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
        )
        try:
            status = process.wait(step.limit_s)
        except subprocess.TimeoutExpired:
            status, reason = None, f"it took more than {step.limit_s} s"
        finally:
            _end(process)
    result = StepResult.read(out, step.name) or StepResult(step.name, "running")
    if status is None:
        result.status, result.reason = "timed out", reason
    elif status and result.status != "failed":
        result.status, result.reason = "failed", f"it ended with status {status}; see {step.name}.log"
    result.seconds = time.monotonic() - began_s
    result.write(out)
    return result


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills the process and those it has started, which are its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _run_here(step: Step, place: Workplace) -> None:
    """Runs a step in this process and writes how it ended."""
    result = place.result
    try:
        step.measure(place)
        result.status = "done"
    except SkipStepError as skipped:
        result.status, result.reason = "skipped", str(skipped)
    except UserError as error:
        result.status, result.reason = "failed", str(error)
    except Exception as error:
        traceback.print_exc()
        first_line = str(error).split("\n")[0]
        result.status, result.reason = "failed", f"{type(error).__name__}: {first_line}; see {step.name}.log"
    result.write(place.folder)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(main)
    run_app(app, "python -m workflows.benchmarks.gpu")
