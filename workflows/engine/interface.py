"""What a workflow gives the engine: the models of its table, and watchers, such as the terminal's view and MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step
from workflows.engine.plan import Reason


@dataclass(frozen=True)
class Model:
    """A table's model. It succeeds or fails as a whole, independently of other models."""

    results: Sequence[Step[Artifact]]
    training: TrainingSettings


class Watcher:
    """Receives the events of the steps. Its methods are called in the driver, one at a time."""

    def begin(self, steps: Mapping[Step[Artifact], Reason], cached: Sequence[Step[Artifact]]) -> None:
        """Called before anything runs, with the steps to run and the reasons, and with cached inputs."""

    def started(self, step: Step[Artifact]) -> None:
        """Called when work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Called with progress or metrics (pipeline.context.Context.emit)."""

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Called when the step's artifact has been published, with its summary."""

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Called when a model has failed; `results` are its final steps."""

    def idle(self) -> None:
        """Called a few times per second."""

    def end(self) -> None:
        """Called at the end, also of a workflow that an error stopped."""
