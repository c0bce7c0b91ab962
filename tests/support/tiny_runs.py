"""Runs in a store without training: real records, written as a workflow would, and a few real artifacts."""

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.store.artifact import Artifact, publish
from pipeline.store.store import LocalStore
from workflows.runs.record import Record, StepRecord, read_records
from workflows.runs.recorder import Opening, Recorder, recording

STEPS = (
    StepRecord("train en-de base", "training.train", "training-1", (), "finished"),
    StepRecord("average en-de base", "averaging.average", "averaging-1", ("training-1",), "finished"),
)
"""What a run of `make_run` consists of."""


def make_artifact(store: LocalStore, name: str, files: Mapping[str, str]) -> Path:
    """Publishes a folder with these files, unless it is there."""

    def make(folder: Path) -> Artifact:
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        return Artifact(folder)

    folder = store.folder(name)
    return folder if folder.exists() else publish(folder, make, {}).folder


def opening(fingerprint: str = "1", **changes: Any) -> Opening:
    """Describes a workflow; `changes` are of its fields."""
    settings = {"decoding.beam_size": 4, "training.seed": 1}
    described = Opening(
        workflow="table2",
        profile="embedded",
        data="generated text",
        fingerprint=fingerprint,
        command="python -m workflows.reproduce_table2",
        overrides="",
        model_command="translate",
        settings={"profile": "embedded"},
        models={"en-de base": settings},
    )
    return replace(described, **changes)


@contextmanager
def begun(store: LocalStore, fingerprint: str = "1", steps: Sequence[StepRecord] = STEPS, **changes: Any) -> Any:
    """Opens the record of a command whose steps are `steps`."""
    with recording(store, opening(fingerprint, **changes), []) as recorder:
        recorder.record = replace(recorder.record, steps=tuple(steps))
        recorder._steps = {step.folder: step for step in steps}
        yield recorder


def make_run(
    store: LocalStore,
    fingerprint: str = "1",
    *,
    figures: Mapping[str, float] | None = None,
    of_model: Mapping[str, float] | None = None,
    steps: Sequence[StepRecord] = STEPS,
    **changes: Any,
) -> Record:
    """Makes a finished run with a report, a model and a training, and returns its record."""
    make_artifact(store, "training-1", {"run.json": "{}", "metrics.jsonl": '{"update": 1}\n'})
    make_artifact(store, "averaging-1", {"model.safetensors": "weights"})
    table = f"tabulating-{fingerprint}"
    make_artifact(store, table, {"report.html": "<p>", "table2.md": "# Table 2\n", "table2.json": "{}"})
    recorder: Recorder
    with begun(store, fingerprint, steps, **changes) as recorder:
        recorder.measured({"en-de base": dict(of_model or {"sacrebleu.test": 82.5})}, {})
        recorder.made(table, dict(figures or {"paper BLEU EN-DE base": 83.1}))
    return read_records(store)[0]


def hold_a_run(root: str) -> None:
    """Begins a run, says so on standard output, and stays until it is killed."""
    import sys
    import time

    steps = (replace(STEPS[0], state="running"), replace(STEPS[1], state="waiting"))
    with begun(LocalStore(Path(root)), steps=steps) as recorder:
        recorder._write()
        print("begun", flush=True)
        sys.stdout.flush()
        time.sleep(60)
