"""Writes the record of the command that is running (`workflows.runs.record`), as a watcher of its steps.

    with recording(store, opening, steps) as recorder:
        run([table], store, [recorder])
        recorder.made(table.folder.name, figures)

A command that dies leaves its record as it last stood, and its lock, which nobody renews any more.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Literal

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import LocalStore
from workflows.engine.dag import Step
from workflows.engine.events import Watcher
from workflows.engine.source import LIBRARIES, source_commit
from workflows.runs.index import write_index
from workflows.runs.names import file_name, publish_names
from workflows.runs.record import RECORDS, ModelRecord, Record, StepRecord, read_records, record_name, write_record

WRITE_S = 2.0
"""Progress is written at most this often; a step that begins or ends, at once."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opening:
    """What is known of a workflow before it runs."""

    workflow: str
    profile: str
    data: str
    fingerprint: str
    command: str
    overrides: str
    model_command: str
    settings: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    """The settings of each model, flattened."""


class Recorder(Watcher):
    """Keeps the record of this command, and the names of what it makes, up to date."""

    def __init__(self, store: LocalStore, record: Record) -> None:
        self.record = record
        self._store = store
        self._steps = {step.folder: step for step in record.steps}
        self._written_s = 0.0
        self._is_stale = self._warned = False

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Notes which steps are still to come: more than expected where folders turned out to be damaged.

        A table of fewer models than planned takes the place of the one that was expected.
        """
        for step in steps:
            planned = [name for name, known in self._steps.items() if known.label == step.label and name != step.name]
            for name in planned:
                del self._steps[name]
            self._steps[step.name] = replace(self._of(step), state="waiting")
        self._write()

    def started(self, step: Step[Artifact]) -> None:
        """Notes that a step has begun."""
        self._change(step, state="running", started=time.time())

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Notes the progress or the figures of a step."""
        known = self._of(step)
        if "metrics" in event:
            metrics = {**known.metrics, **_plain(event["metrics"]), "step": event["step"]}
            self._steps[step.name] = replace(known, metrics=metrics)
        elif "total" in event:
            self._steps[step.name] = replace(known, progress=_plain(event))
        self._is_stale = True

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Notes that a step's artifact is published."""
        self._change(step, state="finished", ended=time.time(), summary=summary)

    def failed(self, step: Step[Artifact]) -> None:
        """Notes which step's error ends the command."""
        self.record = replace(self.record, failed_step=step.label)
        self._change(step, state="failed", ended=time.time())

    def given_up(self, step: Step[Artifact], state: Literal["failed", "stopped"]) -> None:
        """Notes that a training has ended without all its results."""
        self._change(step, state=state, ended=time.time())

    def idle(self) -> None:
        """Writes progress, every so often."""
        if self._is_stale and time.monotonic() - self._written_s > WRITE_S:
            self._write(named=False)

    def measured(
        self, figures: Mapping[str, Mapping[str, float]], states: Mapping[str, Literal["failed", "stopped"]]
    ) -> None:
        """Notes the figures of models that were measured, and the states of the others, by the models' names."""
        models = [
            replace(model, figures=figures.get(model.name, {}), state=states.get(model.name, "measured"))
            for model in self.record.models
        ]
        self.record = replace(self.record, models=tuple(models))

    def made(self, table: str, figures: Mapping[str, float]) -> None:
        """Notes the table's folder in the store, and its main figures."""
        self.record = replace(self.record, table=table, figures=figures)

    def close(self, state: Literal["finished", "failed", "interrupted"], error: str = "") -> None:
        """Notes how the command ended."""
        for name, step in self._steps.items():
            if step.state == "running":
                self._steps[name] = replace(step, state="stopped", ended=time.time())
            elif step.state == "waiting" and state == "finished":  # of a model that was given up
                self._steps[name] = replace(step, state="stopped")
        self.record = replace(self.record, state=state, error=error, ended=time.time())
        self._write()
        write_index(self._store)

    def _of(self, step: Step[Artifact]) -> StepRecord:
        return self._steps.get(step.name) or described(step, self._store)

    def _change(self, step: Step[Artifact], **changes: Any) -> None:
        self._steps[step.name] = replace(self._of(step), **changes)
        self._write()

    def _write(self, *, named: bool = True) -> None:
        """Writes the record and names what is new; where that fails the workflow goes on, after one warning."""
        self._written_s, self._is_stale = time.monotonic(), False
        self.record = replace(self.record, steps=tuple(self._steps.values()), updated=time.time())
        try:
            write_record(self._store, self.record)
            if named:
                publish_names(self._store, self.record)
        except OSError as error:
            if not self._warned:
                logger.warning("the record of this run cannot be written (%s); the run goes on", error)
            self._warned = True


def described(step: Step[Artifact], store: LocalStore) -> StepRecord:
    """Returns the record of a step before anything runs."""
    inputs = tuple(needed.name for needed in step.inputs)
    state: Literal["cached", "waiting"] = "waiting" if store.find(step.name) is None else "cached"
    return StepRecord(step.label, step.stage.name, step.name, inputs, state)


@contextmanager
def recording(
    store: LocalStore,
    opening: Opening,
    steps: Sequence[Step[Artifact]],
) -> Iterator[Recorder]:
    """Opens the record of a command, which is closed with the outcome of the body.

    `steps` are all steps of the DAG, inputs first.
    """
    started = time.time()
    id_ = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{secrets.token_hex(3)}"
    with store.lock(record_name(id_), opening.workflow) as lock:
        lock.take()
        with store.alone(RECORDS):
            record = _opened(store, opening, steps, id_, started)
            write_record(store, record)
        recorder = Recorder(store, record)
        write_index(store)
        try:
            yield recorder
        except KeyboardInterrupt:
            recorder.close("interrupted")
            raise
        except BaseException as error:
            text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            recorder.close("failed", " ".join(text.split())[:1000])
            raise
        recorder.close("finished")


def _opened(store: LocalStore, opening: Opening, steps: Sequence[Step[Artifact]], id_: str, started: float) -> Record:
    shared = _shared(list(opening.models.values()))
    commit = source_commit()
    return Record(
        id=id_,
        run=_run_name(store, opening),
        workflow=opening.workflow,
        profile=opening.profile,
        data=opening.data,
        fingerprint=opening.fingerprint,
        command=opening.command,
        directory=os.getcwd(),
        overrides=opening.overrides,
        model_command=opening.model_command,
        settings=_plain({**shared, **opening.settings}),
        models=tuple(
            ModelRecord(name, _plain({key: value for key, value in settings.items() if key not in shared}))
            for name, settings in opening.models.items()
        ),
        commit=f"{commit.sha1}{'+' * commit.is_dirty}" if commit else "",
        libraries={name: version(name) for name in LIBRARIES},
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started,
        updated=started,
        state="running",
        steps=tuple(described(step, store) for step in steps),
    )


def _run_name(store: LocalStore, opening: Opening) -> str:
    """Returns the name of the run that the command continues, or else the next number of its workflow and profile."""
    place = f"{opening.workflow}/{file_name(opening.profile)}"
    same = [record for record in read_records(store) if record.run.rpartition("/")[0] == place]
    for record in same:
        if record.fingerprint == opening.fingerprint:
            return record.run
    return f"{place}/{1 + max((int(record.run.rpartition('/')[2]) for record in same), default=0)}"


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings that all models have in common."""
    first: Mapping[str, Any] = settings[0] if settings else {}
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in settings)}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values with those that JSON cannot hold as text."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else str(value)
        for name, value in values.items()
    }
