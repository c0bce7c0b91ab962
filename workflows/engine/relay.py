"""Carries the events of a DAG's steps, wherever they run, to watchers in the driver."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step
from workflows.engine.events import Watcher


class Board:
    """The Ray actor to which steps post their events, wherever they run, and from which the driver fetches them."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []

    def post(self, fingerprint: str, event: dict[str, Any]) -> None:
        """Adds an event of a step."""
        self._posted.append((fingerprint, event))

    def fetch(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns all events since the last call."""
        posted, self._posted = self._posted, []
        return posted


@dataclass(frozen=True)
class Poster:
    """Implements `Context.emit` for one step; it is picklable, so training workers and actors can post too."""

    board: ActorHandle
    fingerprint: str

    def __call__(self, event: dict[str, Any]) -> None:
        self.board.post.remote(self.fingerprint, event)


class Relay:
    """Passes the events that steps post on its board on to the watchers."""

    def __init__(self, steps: Iterable[Step[Artifact]], watchers: Sequence[Watcher]) -> None:
        # On the driver's node, so that losing another node does not affect it. If lost itself, it restarts empty.
        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board)
        self.board: Any = board.options(scheduling_strategy=driver_node).remote()
        self._steps = {step.fingerprint: step for step in steps}
        self._unstarted, self._unfinished = dict(self._steps), dict(self._steps)
        self._watchers = watchers

    def fetch(self) -> None:
        """Passes on what has been posted since the last call."""
        for fingerprint, event in ray.get(self.board.fetch.remote()):
            step = self._steps[fingerprint]
            if "started" in event:
                self._started(step)
            elif "finished" in event:
                self.finished(step, event["finished"])
            else:
                for watcher in self._watchers:
                    watcher.event(step, event)

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Reports a published artifact once, since the step's own event may arrive later than its result."""
        self._started(step)
        if self._unfinished.pop(step.fingerprint, None):
            for watcher in self._watchers:
                watcher.finished(step, summary)

    def given_up(self, step: Step[Artifact], state: Literal["failed", "stopped"]) -> None:
        """Reports that a trial has ended without all its results."""
        for watcher in self._watchers:
            watcher.given_up(step, state)

    def idle(self) -> None:
        """Lets the watchers redraw."""
        for watcher in self._watchers:
            watcher.idle()

    def _started(self, step: Step[Artifact]) -> None:
        if self._unstarted.pop(step.fingerprint, None):
            for watcher in self._watchers:
                watcher.started(step)
