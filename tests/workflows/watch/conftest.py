"""Runs in a store as commands leave them: a small DAG, and a training that has written some lines."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.store import LocalStore
from tests.support.tiny_runs import begun
from workflows.runs.record import StepRecord

STEPS = (
    StepRecord("encode en-de", "encoding.encode", "encoding-1", (), "cached"),
    StepRecord(
        "train en-de base",
        "training.train",
        "training-1",
        ("encoding-1",),
        "running",
        started=1000.0,
        progress={"done": 30, "total": 40, "unit": "updates"},
    ),
    StepRecord("average en-de base", "averaging.average", "averaging-1", ("training-1",), "waiting"),
    StepRecord("cost en-de base", "costs.count", "costs-1", ("training-1",), "waiting"),
    StepRecord("report en-de", "corpus_report.report", "corpus_report-1", ("encoding-1",), "finished", 900.0, 907.0),
    StepRecord("table 2", "tabulating.tabulate", "tabulating-1", ("averaging-1", "costs-1"), "waiting"),
)


def write_metrics(store: LocalStore, n_lines: int) -> None:
    """Writes lines as a training does, ten updates a second, the last of them cut short."""
    folder = store.scratch("training-1")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"update": i + 1, "loss": 8 / (i + 1), "train_s": (i + 1) / 10} for i in range(n_lines)]
    lines[1::2] = [{**line, "dev_perplexity": 50 / (i + 1)} for i, line in enumerate(lines[1::2])]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"update": 99, "lo')


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """An empty one."""
    return LocalStore(tmp_path)


@pytest.fixture
def running(store: LocalStore) -> Callable[..., Any]:
    """Holds a run whose training has written 30 lines; `changes` are of steps, by label."""

    @contextmanager
    def hold(**changes: dict[str, Any]) -> Iterator[Any]:
        write_metrics(store, 30)
        steps = tuple(replace(step, **changes.get(step.label, {})) for step in STEPS)
        with begun(store, steps=steps) as recorder:
            recorder._write()
            yield recorder

    return hold
