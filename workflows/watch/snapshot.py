"""Reads how far a run has got: the states of its stages, where each stands in the DAG, and the curves of its trainings.

    snapshot = take(store, record_of(store, "table2/embedded/1"))

Everything comes from the store: the record that the running command keeps, and the `metrics.jsonl` of each training,
whether it is still being written or published. So a look disturbs nothing, and a killed command is seen, too.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from pipeline.training.metrics import METRICS
from workflows.runs.comparison import run_named
from workflows.runs.record import Record, Run, State, StepRecord, StepState, read_records, runs_of

FIGURES = ("loss", "dev_perplexity")
MOST_POINTS = 240
"""The most points of a curve; of a longer one, as many at even distances."""
RATE_LINES = 20
"""The lines at the end of `metrics.jsonl` from which the rate of a training is taken."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A figure of a training over its updates."""

    training: str
    figure: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class StageView:
    """A stage as it is shown."""

    label: str
    state: StepState
    parent: int | None
    """The number of the stage beneath which it stands: the last of its inputs; None for one without inputs."""
    inputs: tuple[int, ...]
    """The numbers of all its inputs."""
    depth: int
    """The number of stages that must come before it, one after the other."""
    row: int
    """Its place beside the other stages of its depth, the same as that of its first child."""
    seconds: float | None
    """How long it took, or has been running."""
    fraction: float | None
    """The part that is done, where that is known."""
    told: str
    """Its progress, or a few words about what it made."""
    left_s: float | None = None
    """The seconds that a training will still take, at its present rate."""


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    run: str
    state: State
    command: str
    seconds: float
    """Since the command began, or until it ended."""
    where: str
    """Where it stopped, if it stopped."""
    error: str
    stages: tuple[StageView, ...]
    """Inputs first."""
    curves: tuple[Curve, ...]
    report: str
    """The path of its report, once there is one."""

    @property
    def counts(self) -> dict[str, int]:
        """How many stages are in each state."""
        states = [stage.state for stage in self.stages]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    def told(self) -> str:
        """Counts the stages by state, in words."""
        counts = self.counts
        done = counts.get("finished", 0) + counts.get("cached", 0)
        names = {"running": "running", "waiting": "to come", "failed": "failed", "stopped": "stopped"}
        others = [f"{counts[state]} {name}" for state, name in names.items() if counts.get(state)]
        return ", ".join([f"{done} of {len(self.stages)} stages done", *others])


def record_of(store: LocalStore, name: str | None) -> Record:
    """Returns the newest record of the run `name` (`workflows.runs.comparison.run_named`); None: of any run.

    Raises UserError if there is none.
    """
    runs = runs_of(read_records(store))
    if not runs:
        raise UserError(f"no run is recorded in {store.shown}; start one, or name its folder with --store")
    return (run_named(runs, name) if name else runs[0]).newest


def take(store: LocalStore, record: Record) -> Snapshot:
    """Returns the state of a run, from its record and from what its trainings have written."""
    metrics = {step.label: _metrics(store, step) for step in record.steps if step.stage == "training.train"}
    curves = [
        Curve(label, figure, points)
        for label, lines in metrics.items()
        for figure in FIGURES
        if (points := _thinned([(line["update"], line[figure]) for line in lines if isfinite(line.get(figure, nan))]))
    ]
    now_s = time.time() if record.state == "running" else record.ended or record.updated
    return Snapshot(
        record.run,
        record.state,
        record.command,
        now_s - record.started,
        Run((record,)).where,
        record.error,
        tuple(_stages(record, metrics, now_s)),
        tuple(curves),
        str(store.folder(record.table) / "report.html") if record.table else "",
    )


def _metrics(store: LocalStore, step: StepRecord) -> list[Mapping[str, Any]]:
    """Reads the lines that a training has written; the last may be incomplete."""
    *complete, _ = (store.peek(step.folder, METRICS) or "").split("\n")
    return [json.loads(line) for line in complete]


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    """Returns at most MOST_POINTS of the points, the last one among them."""
    every = -(-len(points) // MOST_POINTS) or 1
    return tuple(reversed([*reversed(points)][::every]))


def _stages(record: Record, metrics: Mapping[str, Sequence[Mapping[str, Any]]], now_s: float) -> list[StageView]:
    """Places the stages, which come inputs first."""
    numbers = {step.folder: i for i, step in enumerate(record.steps)}
    inputs = [tuple(numbers[name] for name in step.inputs if name in numbers) for step in record.steps]
    depths: list[int] = []
    for of_step in inputs:
        depths.append(1 + max((depths[i] for i in of_step), default=-1))
    parents = [max(of_step, key=lambda i: depths[i], default=None) for of_step in inputs]
    rows = _rows(parents)
    return [
        replace(_view(step, metrics.get(step.label, ()), now_s), parent=parent, inputs=given, depth=depth, row=row)
        for step, parent, given, depth, row in zip(record.steps, parents, inputs, depths, rows, strict=True)
    ]


def _rows(parents: Sequence[int | None]) -> list[int]:
    """Gives the first child of each stage its own row, and each further child a new one."""
    children: dict[int | None, list[int]] = {}
    for i, parent in enumerate(parents):
        children.setdefault(parent, []).append(i)
    rows, next_row = [0] * len(parents), 0
    to_place = [*reversed(children.get(None, []))]
    while to_place:
        stage = to_place.pop()
        parent = parents[stage]
        if parent is not None and children[parent][0] == stage:
            rows[stage] = rows[parent]
        else:
            rows[stage], next_row = next_row, next_row + 1
        to_place += reversed(children.get(stage, []))
    return rows


def _view(step: StepRecord, metrics: Sequence[Mapping[str, Any]], now_s: float) -> StageView:
    seconds = None if step.started is None else (step.ended or now_s) - step.started
    progress = step.progress
    fraction = progress["done"] / progress["total"] if progress.get("total") else None
    told, left_s = step.summary, None
    if step.state in ("running", "stopped", "failed") and fraction is not None:
        told = f"{progress['done']:,.0f} of {progress['total']:,.0f} {progress.get('unit', '')}".strip()
    if step.state == "running" and fraction is not None:
        left_s = _left_s(metrics, progress["total"] - progress["done"])
    return StageView(step.label, step.state, None, (), 0, 0, seconds, fraction, told, left_s)


def _left_s(metrics: Sequence[Mapping[str, Any]], updates: float) -> float | None:
    """Returns the seconds that a training will take for some more updates, at the rate of the last ones."""
    lines = [line for line in metrics if "train_s" in line][-RATE_LINES:]
    if len(lines) < 2 or lines[-1]["update"] <= lines[0]["update"]:
        return None
    rate = (lines[-1]["train_s"] - lines[0]["train_s"]) / (lines[-1]["update"] - lines[0]["update"])
    return float(rate * updates)


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the snapshot as JSON values, with the counts in words."""
    return {**asdict(snapshot), "report": Path(snapshot.report).name, "told": snapshot.told()}
