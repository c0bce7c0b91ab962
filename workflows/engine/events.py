"""What happens to the steps of a DAG, wherever they run, and who is told of it in the driver."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step


class Watcher:
    """Told of what happens to the steps; called in the driver, one call at a time."""

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Before anything runs: the steps to run and those found in the store."""

    def started(self, step: Step[Artifact]) -> None:
        """Work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Progress or metrics (pipeline.store.artifact.Context.emit)."""

    def finished(self, step: Step[Artifact], artifact: Artifact) -> None:
        """The step's artifact is published."""

    def idle(self) -> None:
        """Called some times a second."""

    def end(self, error: BaseException | None) -> None:
        """All done, or stopped by `error`."""


class Board:
    """The Ray actor to which steps, wherever they run, post their events, and from which the driver fetches them."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []

    def post(self, fingerprint: str, event: dict[str, Any]) -> None:
        """Adds an event of a step."""
        self._posted.append((fingerprint, event))

    def fetch(self) -> list[tuple[str, dict[str, Any]]]:
        """All events since the last call."""
        posted, self._posted = self._posted, []
        return posted


@dataclass(frozen=True)
class Poster:
    """`Context.emit` of one step: picklable, so that training workers and actors can post too."""

    board: ActorHandle
    fingerprint: str

    def __call__(self, event: dict[str, Any]) -> None:
        self.board.post.remote(self.fingerprint, event)


class Relay:
    """Brings what the steps post on a board of theirs to the watchers."""

    def __init__(self, steps: Iterable[Step[Artifact]], watchers: Sequence[Watcher]) -> None:
        # Beside the driver: the loss of another node must not take it away. Lost itself, it is begun anew, empty.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board)
        self.board: Any = board.options(scheduling_strategy=here).remote()
        self._steps = {step.fingerprint: step for step in steps}
        self._unstarted, self._unfinished = dict(self._steps), dict(self._steps)
        self._watchers = watchers

    def fetch(self) -> None:
        """Tells what has been posted since the last call."""
        for fingerprint, event in ray.get(self.board.fetch.remote()):
            step = self._steps[fingerprint]
            if "started" in event:
                self._started(step)
            elif "finished" in event:
                self.finished(step, event["finished"])
            else:
                for watcher in self._watchers:
                    watcher.event(step, event)

    def finished(self, step: Step[Artifact], artifact: Artifact) -> None:
        """Tells that a step's artifact is published, once: the post of it may come later than the step's result."""
        self._started(step)
        if self._unfinished.pop(step.fingerprint, None):
            for watcher in self._watchers:
                watcher.finished(step, artifact)

    def idle(self) -> None:
        """Lets the watchers redraw."""
        for watcher in self._watchers:
            watcher.idle()

    def _started(self, step: Step[Artifact]) -> None:
        if self._unstarted.pop(step.fingerprint, None):
            for watcher in self._watchers:
                watcher.started(step)
