"""What happens to a DAG's steps, as a driver's watchers are told; workflows.engine.relay carries it to them."""

from collections.abc import Sequence
from typing import Any, Literal

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step


class Watcher:
    """Receives the events of the steps; its methods are called in the driver, one at a time."""

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Called before anything runs, with the steps to run and those found in the store."""

    def started(self, step: Step[Artifact]) -> None:
        """Called when work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Called with progress or metrics (pipeline.store.artifact.Context.emit)."""

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Called when the step's artifact has been published, with a few words about it."""

    def given_up(self, step: Step[Artifact], state: Literal["failed", "stopped"]) -> None:
        """Called when a trial of a grid has ended without all its results; `step` is its training."""

    def idle(self) -> None:
        """Called a few times per second."""

    def end(self, error: BaseException | None) -> None:
        """Called at the end, with the `error` that stopped the work, if any."""
