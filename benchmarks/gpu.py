"""Checks and measures this project on a GPU in parts, those worth most first, and prints a table: `make gpu`.

python -m benchmarks.gpu --plan                     # the parts, and how long each takes
python -m benchmarks.gpu --from big                 # goes on with a part; --only base,big: just these
python -m benchmarks.gpu --device cpu --quick       # tests the parts at tiny sizes

Each part has processes of its own, ended at its time limit. Before the next one begins, `<out>/<part>.json` has its
result and `<out>/table.md` all results; `<out>/<part>.log` is what it printed, `<out>/<part>.txt` lists the kernels of
three updates by time, and `.json.gz` is their trace, for https://ui.perfetto.dev. Parts without libraries are skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
import typer

from benchmarks import training
from benchmarks.contenders import OURS, Contender, is_installed
from benchmarks.training_loops import OurLoop
from pipeline.artifacts import EncodedDataset
from pipeline.environment import usable_cpus, worker_environment
from pipeline.errors import UserError
from pipeline.memory import release_gpu_memory
from pipeline.settings import TrainingSettings
from pipeline.training.profiling import UpdateProfiler
from pipeline.warning_events import emitting_warnings
from workflows.cli.console import App, console, help_text, run_app

Result = dict[str, Any]
ROOT = Path(__file__).parents[1]
PROFILED_UPDATES, PEER_ROUNDS_UPDATES, DOUBLINGS = 3, (2, 10), 2
FORMATS = {"tokens_s": ",.0f", "update_s": ".4f", "roofline_fraction": ".0%", "peak_memory_gb": ".1f"}
FORMATS |= {"start_s": ".0f", "compile_s": ".0f", "part_s": ".0f"}
COLUMNS = (*FORMATS, "dtype", "packed", "compiled", "captured", "note")
"""Columns of the table: keys of the results. `start_s` is the time to the end of the warm-up, including compilation
(`compile_s`), recording and checking a graph, and trying the largest passes."""
GRACE_S = 10.0
"""Time for a part's processes to end by themselves, once they are told to."""


class Part(NamedTuple):
    """A part: a run to time, unless it has tests."""

    what: str
    expected_s: int
    limit_s: int
    """Both on an H200, expected by docs/results; a CPU has thrice the limit."""
    changes: Result = {}  # noqa: RUF012
    """Settings that differ from a run's."""
    size: str = "base"
    seconds: float = 3.0
    """Rounds of `updates` begin until then."""
    updates: int = 20
    tests: str = ""
    needs: tuple[str, ...] = ()

    def skipped(self) -> str:
        """Returns why the part is skipped, if it is."""
        missing = [library for library in self.needs if not is_installed(library)]
        return f"skipped: {' and '.join(missing)} not installed" if missing else ""


BIG = "big for 60 s; eight A100s took 71 to 78 ms an update in 2020, at 41% of their peak"
WHOLE, OF_TRAINING = "tests/workflows/test_on_gpus.py", "tests/pipeline/training/test_"
STEPS = f"tests/model tests/pipeline/parsing/test_constraint.py {OF_TRAINING}on_devices.py {OF_TRAINING}checkpoints.py"
PARTS = {
    "whole": Part("text to translations through Ray", 45, 150, tests=WHOLE, needs=("hypothesis", "ray")),
    "right": Part("the other tests on a GPU", 90, 240, tests=STEPS, needs=("hypothesis", "pytest")),
    "base": Part("the paper's base, as a run trains it", 35, 100),
    "big": Part(BIG, 95, 200, {}, "big", 60.0, updates=100),
    "exact": Part("base with exact_reduction = true", 15, 60, {"exact_reduction": True}),
    "plain": Part('base with speed = "plain"', 20, 60, {"speed": "plain"}, updates=5),
    "float32": Part('base with dtype = "float32"', 50, 120, {"dtype": "float32"}, updates=5),
    "passes-8": Part("base in eight passes an update", 30, 90, {"pass_tokens": TrainingSettings().budget_tokens // 8}),
    "largest": Part("the largest pass of plain that fits, to four times an update", 20, 90, {"speed": "plain"}),
    "peers": Part("base beside other libraries", 60, 180),
}


def run(name: str, device: str, quick: bool, out: Path) -> Result:
    """Runs a part, until its time limit at most. Returns its result."""
    part, file, limit_s = PARTS[name], out / f"{name}.json", PARTS[name].limit_s * (1 if device == "cuda" else 3)
    file.unlink(missing_ok=True)
    if skipped := part.skipped():
        return {"note": skipped}
    chosen = f"{device} and not compiled" if quick else device  # compiling takes minutes, also in a test
    words = ["-m", "pytest", "-q", "-m", "gpu", "-k", chosen, "-o", "timeout=1800", *part.tests.split()]
    if name == "right" and is_installed("xdist"):
        words += ["-n", str(min(6, usable_cpus()))]
    if not part.tests:
        words = ["-c", f"from benchmarks import gpu; gpu.measure({name!r}, {device!r}, {quick}, {str(out)!r})"]
    environment = {**os.environ, **worker_environment(), "PYTHONUNBUFFERED": "1"}
    began_s, status, log = time.monotonic(), None, out / f"{name}.log"
    with log.open("wb") as written:
        to: dict[str, Any] = {"stdout": written, "stderr": written}
        started = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=environment, start_new_session=True, **to)
        try:
            with suppress(subprocess.TimeoutExpired):
                status = started.wait(limit_s)
        finally:
            end(started)
    last = " ".join(log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2].split())
    # A process may fail after it has measured. The last line of tests counts them.
    result: Result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"note": last}
    if status != 0:
        result["note"] = f"failed: {f'exceeded {limit_s} s' if status is None else last[-300:] or status}"
    return {**result, "failed": status != 0, "part_s": time.monotonic() - began_s}


def end(started: subprocess.Popen[bytes]) -> None:
    """Ends what is left of a part's processes, which are one group."""
    until_s = time.monotonic() + GRACE_S
    try:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(started.pid, signal.SIGINT)
            while time.monotonic() < until_s:
                started.poll()  # otherwise it would stay in the group
                os.killpg(started.pid, 0)
                time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def measure(name: str, device: str, quick: bool, out: str) -> None:
    """Measures a part in this process. Writes its result to `<out>/<name>.json`, and only then profiles a run."""
    part = PARTS[name]._replace(size="tiny", seconds=0.0, updates=1) if quick else PARTS[name]
    size, loop = training.SIZES[part.size], None
    settings = size.settings(device="gpu" if device == "cuda" else "cpu").model_copy(update=part.changes)
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder:
        if name != "peers":
            dataset = training.write_text(size, Path(folder))
        if name == "peers":
            result = training.measure(size, settings, *((1, 1) if quick else PEER_ROUNDS_UPDATES))
        elif name == "largest":
            tokens = largest_pass(settings, dataset, Path(folder))
            result = {"largest_pass_tokens": tokens, "note": f"{tokens:,} tokens a side"}
        else:
            events: list[Result] = []
            result, loop = emitting_warnings(events.append, timed, part, settings, dataset, Path(folder) / "run")
            result["note"] = "; ".join([part.what, *(event["warning"] for event in events)])
        Path(out, f"{name}.json").write_text(json.dumps(result), encoding="utf-8")
        if loop:
            done = loop.state.update
            last = done + min(part.updates, PROFILED_UPDATES)
            loop.training.profiler = UpdateProfiler((done + 1, last), done, loop.device, loop.training.writer)
            loop.training.train(until=last)
            for file in loop.training.folder.glob("profile-*"):
                shutil.copyfile(file, Path(out, f"{name}{''.join(file.suffixes)}"))


def timed(part: Part, settings: TrainingSettings, dataset: EncodedDataset, folder: Path) -> tuple[Result, OurLoop]:
    """Times rounds of updates after a warm-up."""
    began_s = time.perf_counter()
    loop = OurLoop(settings, dataset, folder)
    ours = Contender(OURS, loop.warm_up(), dict, workers=0)
    start_s = time.perf_counter() - began_s
    dynamo = sys.modules.get("torch._dynamo.utils")
    compile_s = dynamo.calculate_time_spent()["total_wall_time"] if dynamo else 0.0
    until_s = time.monotonic() + part.seconds
    while not ours.rounds or (time.monotonic() < until_s and loop.state.update + part.updates < settings.updates):
        ours.rounds.append(loop.round(part.updates))
    result = training.results([ours], part.updates)
    result |= {**result.pop("contenders")[0], **loop.machine(), "start_s": start_s, "compile_s": compile_s}
    return result, loop


def largest_pass(settings: TrainingSettings, dataset: EncodedDataset, folder: Path) -> int:
    """Returns the tokens per side of the largest pass that fits, by doubling an update's."""
    fitting = 0
    for tokens in (settings.budget_tokens << n for n in range(1 + DOUBLINGS)):
        changed = settings.model_copy(update={"pass_tokens": tokens, "budget_tokens": tokens})
        loop = OurLoop(changed, dataset, folder / str(tokens))
        loop.warm_up()
        if loop.training.updates.n_passes > 1:  # it does not fit
            break
        fitting = tokens
        del loop
        release_gpu_memory()
    return fitting


def table(out: Path) -> list[str]:
    """Returns the lines of a Markdown table of the results in `out`."""
    files = {name: out / f"{name}.json" for name in PARTS}
    found = [(name, json.loads(file.read_text(encoding="utf-8"))) for name, file in files.items() if file.exists()]
    heading = [f"| part | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|"]
    return heading + [row for name, result in found for row in rows(name, result)]


def rows(name: str, result: Result) -> list[str]:
    """Returns a part's row, of a comparison one per library."""

    def cells(done: Result) -> list[str]:
        return ["" if done.get(key) is None else format(done[key], FORMATS.get(key, "")) for key in COLUMNS]

    peers = {f"{name}, {peer['name']}": peer for peer in result.get("contenders", [])}
    return [f"| {' | '.join([of, *cells(done)])} |" for of, done in (peers or {name: result}).items()]


def plan(names: list[str], out: Path) -> str:
    """Says what these parts do, in order, and how long they take."""
    parts = {name: PARTS[name] for name in names}
    lines = [f"{name:8} {of.expected_s:7} s {of.limit_s:5} s  {of.skipped() or of.what}" for name, of in parts.items()]
    expected_s, limit_s = (sum(times) for times in zip(*(part[1:3] for part in parts.values()), strict=True))
    lines += [f"in all   {expected_s:7} s {limit_s:5} s  results in {out}"]
    return "\n".join(["part      expected at most", *lines])


app = App()


@app.command(help=help_text(__doc__))
def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("build/gpu"),
    only: Annotated[str, typer.Option(help=f"Parts to run: {', '.join(PARTS)}.  [all]")] = "",
    first: Annotated[str, typer.Option("--from", help="First part to run.")] = next(iter(PARTS)),
    only_plan: Annotated[bool, typer.Option("--plan", help="Print what would run, and for how long.")] = False,
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="What to measure.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to test the parts.")] = False,
) -> None:
    """Check and measure this project on a GPU. Exits with 1 if a part fails."""
    wanted, names, failed = only.split(",") if only else [*PARTS], [*PARTS], False
    if wrong := [name for name in (*wanted, first) if name not in PARTS]:
        raise UserError(f"there is no part {wrong[0]}; choose from {', '.join(PARTS)}")
    if not (names := [name for name in names[names.index(first) :] if name in wanted]):
        raise UserError(f"--only {only} --from {first}: none of these parts comes that late; drop --from")
    if only_plan:
        console.print(plan(names, out), highlight=False, soft_wrap=True)
        return
    if device == "cuda" and not torch.cuda.is_available():
        from workflows.cli import doctor

        found = doctor.gpu()
        raise UserError(f"--device cuda: {found.text}; {found.remedy or '--device cpu --quick tests the parts'}")
    out = out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        result = run(name, device, quick, out)
        failed |= result.get("failed", False)
        (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        lines = table(out)
        (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        console.print("\n".join(lines if name == names[0] else rows(name, result)), highlight=False, soft_wrap=True)
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.gpu")
