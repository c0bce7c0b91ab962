"""Forecasts the hours and the disk use of the runs that a table lacks, for `--plan`.

A run with the settings of a finished one in the store, on this machine's hardware, takes as long. Any other takes its
operations, over sentence pairs whose lengths are drawn like real text's, by a measured rate, and a fixed time an update
that does not shrink with the number of devices. Nothing is read or downloaded.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from model.flops import count_parameters, training_flop
from pipeline.artifacts import TrainingRun
from pipeline.corpora import embedded, multi30k
from pipeline.corpora.lengths import drawn
from pipeline.environment import busy_text, usable_cpus
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_of, matmul_flop_s
from pipeline.settings import TrainingSettings
from pipeline.store.store import Store
from workflows.profiles.profile import Profile
from workflows.quantities import duration, flop_text
from workflows.tables.measured import Cell

SPEEDS: Mapping[str, float] = {"h200": 1.0, "h100": 0.91, "a100": 0.35}
"""Speed of an update relative to an H200, the only one measured; the others follow from rate and bandwidth of the data
sheets."""
H200_FLOP_S: Mapping[int, float] = {512: 145e12, 1024: 218e12}
"""Achieved rate of updates on an H200 by d_model: base's is measured, 60.4 ms (docs/results/2026-11-26_h200.md), big's
estimated from base's kernels."""
H200_MATMUL_FLOP_S = 804e12
"""Its rate of large products, to compare other GPUs with."""
UPDATE_S_PER_WEIGHT, EXCHANGE_S_PER_WEIGHT = 1.0e-11, 1.9e-11
"""Time of Adam and of the sum over several GPUs, estimated from an H200's bandwidth: 0.65 and 1.2 ms for base."""
CPU_FRACTIONS: Mapping[int, float] = {128: 0.23, 192: 0.47, 256: 0.59, 512: 0.77}
"""Achieved fraction of a CPU's rate of products, at most twice the rate of float32, by d_model: measured in runs on two
cores; 512 is estimated."""
UNKNOWN = "unknown"
COPIES = 5
"""Arrays of the weights' size beside the kept checkpoints: weights and Adam's two in the recovery checkpoint, and two
averaged models."""


class Run(NamedTuple):
    """Missing runs that differ only in their seeds. Seconds are None for a model unlike any that was measured."""

    name: str
    times: int
    parameters: int
    flop: float
    seconds: float | None
    measured: bool
    disk_bytes: int


def forecast(
    profile: Profile, models: Iterable[Cell], gpus: int | None, gpu: str | None, store: Store
) -> tuple[RenderableType, dict[str, Any]] | None:
    """Forecasts the runs of some models on the named GPUs or on this machine, as text and as values for JSON.

    Returns None without models. Raises UserError for an unknown GPU, and for GPUs that this machine lacks.
    """
    if gpu is not None and gpu.lower() not in SPEEDS:
        raise UserError(f"--gpu {gpu}: choose one of {', '.join(SPEEDS)}")
    if gpus is not None and gpu is None and not torch.cuda.is_available():
        raise UserError(f"--gpus {gpus}: torch finds no GPU here; name one with --gpu: {', '.join(SPEEDS)}")
    missing: Counter[tuple[str, str, TrainingSettings]] = Counter()
    for model in {model.training.fingerprint: model for model in models}.values():
        name = model.model if model.model.startswith(model.pair) else f"{model.pair} {model.model}"
        missing[name, model.pair, model.recipe.training.model_copy(update={"seed": 1})] += 1
    if not missing:
        return None
    finished = {} if gpu or gpus else dict(_finished(store))
    gpus = gpus or (1 if gpu else torch.cuda.device_count())
    runs = [_run(profile, *run, times, gpus, gpu, finished) for run, times in missing.items()]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("missing run", "parameters", "FLOP", "time", "disk"):
        table.add_column(heading, justify="left" if heading == "missing run" else "right")
    for run in runs:
        name = run.name + (f", {run.times} seeds, each" if run.times > 1 else "")
        time = UNKNOWN if run.seconds is None else duration(run.seconds) + " (measured)" * run.measured
        table.add_row(name, f"{run.parameters / 1e6:.1f} M", flop_text(run.flop), time, decimal(run.disk_bytes))
    fields = ("flop", "seconds", "disk_bytes")
    flop, seconds, disk = (sum(run.times * (getattr(run, of) or 0) for run in runs) for of in fields)
    cpus, at_once = usable_cpus(), 1
    if not (gpu or torch.cuda.is_available()):
        room = [cpus // (each.cpus_per_worker * (each.worker_bounds[1] or cpus)) for *_, each in missing]
        at_once = max(1, min(missing.total(), *room))
    longest = max(run.seconds or 0 for run in runs)
    is_known = all(run.seconds is not None for run in runs)
    total = duration(max(seconds / at_once, longest)) if is_known else UNKNOWN
    table.add_row("total", "", flop_text(flop), total, decimal(disk), style="bold")
    pairs = {pair for _, pair, _ in missing} & {*profile.corpora}
    disk_bytes = disk + sum(_text_bytes(profile, pair) for pair in pairs)
    folder = next(parent for parent in (store.root, *store.root.parents) if parent.is_dir())
    free_bytes = shutil.disk_usage(folder).free
    shown = f"disk: about {decimal(disk_bytes)}; {folder} has {decimal(free_bytes)} free"
    if disk_bytes > free_bytes:
        shown = f"WARNING: not enough {shown}; choose another --store"
    where = f"{gpus} × {gpu.upper()}" if gpu else "this machine"
    order = f"{at_once} runs at once" if at_once > 1 else "one run after another"
    notes = f"Times are of {order}, without the other stages, and estimates unless marked as measured."
    if not is_known:
        notes += f" {UNKNOWN.capitalize()}: unlike any model whose speed was measured."
    if not gpu and (busy := busy_text()):
        notes += f" This machine is busy ({busy}): it takes less when idle."
    text = Group("", Text(f"Forecast for {where}", style="bold"), "", table, "", Text(shown), Text(notes))
    return text, {"hardware": where, "runs": [run._asdict() for run in runs], "disk_bytes": disk_bytes}


def _finished(store: Store) -> Iterator[tuple[str, float]]:
    """Yields the settings of finished runs, made on this machine's hardware, with their seconds."""
    here = {device_name("cpu"), *([device_name("cuda")] if torch.cuda.is_available() else [])}
    for path in store.artifacts.glob("training-*/run.json"):
        with suppress(UserError):  # another version's
            run = TrainingRun(path.parent).load()
            if {device.name for segment in run.segments for device in segment.devices} <= here:
                yield _key(run.settings), max(run.loop_s or 0.0, run.train_s)  # the last session's, all sessions'


def _key(training: TrainingSettings) -> str:
    return training.model_copy(update={"seed": 1, "log_updates": 1, "profile_updates": None}).model_dump_json()


def _run(
    profile: Profile,
    name: str,
    pair: str,
    training: TrainingSettings,
    times: int,
    gpus: int,
    gpu: str | None,
    finished: Mapping[str, float],
) -> Run:
    corpus = profile.for_pair(pair).corpora[pair] if pair in profile.corpora else None
    is_short = corpus is None or isinstance(corpus, embedded.EmbeddedSettings | multi30k.Multi30kSettings)
    source, target = drawn("multi30k" if is_short else "wmt14")
    fuller_tokens = max(int(source.sum()), int(target.sum()))
    flop = training_flop(training.model, source, target) * training.budget_tokens / fuller_tokens
    parameters, known = count_parameters(training.model), finished.get(_key(training))
    seconds = known or _seconds(training, flop, parameters, gpus, gpu)
    disk_bytes = (len(training.kept_updates) + COPIES) * 4 * parameters
    return Run(name, times, parameters, training.updates * flop, seconds, known is not None, disk_bytes)


def _seconds(
    training: TrainingSettings, update_flop: float, parameters: int, gpus: int, gpu: str | None
) -> float | None:
    """Returns the time of a run by the rate of its hardware."""
    on_gpu = gpu is not None or (torch.cuda.is_available() and training.device != "cpu")
    rates = H200_FLOP_S if on_gpu else CPU_FRACTIONS
    width = max((width for width in rates if width <= training.model.d_model), default=None)
    if width is None or training.model.architecture != "transformer":
        return None
    if not on_gpu:
        dtypes = (dtype_of(training.dtype, "cpu"), 1), (torch.float32, 2)  # AMX, 10 times as fast, has products only
        rate = min(times * matmul_flop_s("cpu", dtype) for dtype, times in dtypes)  # with as many threads as cores
        used = min(1.0, training.cpus_per_worker * training.worker_bounds[1] / usable_cpus() or 1.0)
        return training.updates * update_flop / (rates[width] * rate * used)
    devices = min(gpus, training.most_workers)
    speed = SPEEDS[gpu.lower()] if gpu else matmul_flop_s("cuda", torch.bfloat16) / H200_MATMUL_FLOP_S
    share = -(-training.units // devices) / training.units  # all wait for the one with the most
    fixed_s = parameters * (UPDATE_S_PER_WEIGHT / speed + EXCHANGE_S_PER_WEIGHT * (devices > 1))
    return training.updates * (share * update_flop / (rates[width] * speed) + fixed_s)


def _text_bytes(profile: Profile, pair: str) -> int:
    """Returns the bytes of a pair's text: downloads, plain text, token ids; 0 if not known yet."""
    amount = profile.for_pair(pair).corpora[pair].amount()
    return round(sum(size or 0 for size in amount.downloads.values()) + amount.kept_bytes) if amount.text_bytes else 0
