"""Events of steps: posted to an actor (`Board`) by those who compute, and forwarded to the watchers (`Relay`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step, in_order
from workflows.engine.runner import Watcher


class Board:
    """A Ray actor that collects the events of all steps; the driver fetches them."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []
        self._warnings: dict[str, list[str]] = {}
        self._submitted: Mapping[str, Any] = {}

    def submit(self, references: Mapping[str, Any]) -> None:
        """Stores references, by fingerprint, to steps that the driver has submitted."""
        self._submitted = references

    def submitted(self) -> Mapping[str, Any]:
        """Returns these references, for trials that depend on the steps."""
        return self._submitted

    def post(self, fingerprint: str, event: dict[str, Any]) -> None:
        """Adds an event of a step. A warning is added once, even if several workers or attempts log it."""
        if "warning" in event:
            known = self._warnings.setdefault(fingerprint, [])
            if event["warning"] in known:
                return
            known.append(event["warning"])
        self._posted.append((fingerprint, event))

    def warnings(self, fingerprint: str) -> list[str]:
        """Returns the warnings of a step so far."""
        return self._warnings.get(fingerprint, [])

    def fetch(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns all events since the last call."""
        posted, self._posted = self._posted, []
        return posted


@dataclass(frozen=True)
class Poster:
    """Implements `Context.emit` for one step. It is picklable, so that training workers and actors can post, too."""

    board: ActorHandle
    fingerprint: str

    def __call__(self, event: dict[str, Any]) -> None:
        posted: Any = self.board.post.remote(self.fingerprint, event)
        if "warning" in event:  # the board must have the warnings before the step is published
            ray.get(posted)


class Relay:
    """Forwards the events on its board to the watchers."""

    def __init__(self, steps: Iterable[Step[Artifact]], watchers: Sequence[Watcher]) -> None:
        # On the driver's node, so that it survives the loss of other nodes. If lost, it restarts empty.
        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        board = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board)
        self.board: Any = board.options(scheduling_strategy=driver_node).remote()
        self._steps = dict[str, Step[Artifact]]()
        self._unstarted = dict[str, Step[Artifact]]()
        self.unfinished = set[str]()
        """The fingerprints of steps that have not finished, cached ones included."""
        self._watchers = watchers
        self.expect(steps)

    def expect(self, steps: Iterable[Step[Artifact]]) -> None:
        """Registers steps that may post events, with all their inputs.

        Inputs are registered because a trial reruns those damaged in the meantime, too.
        """
        for step in in_order(steps):
            if step.fingerprint not in self._steps:
                self._steps[step.fingerprint] = self._unstarted[step.fingerprint] = step
                self.unfinished.add(step.fingerprint)

    def fetch(self) -> None:
        """Forwards the events since the last call."""
        for fingerprint, event in ray.get(self.board.fetch.remote()):
            step = self._steps[fingerprint]
            self._started(step)
            if "finished" in event:
                self.finished(step, event["finished"])
            elif "started" not in event:
                for watcher in self._watchers:
                    watcher.event(step, event)

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Reports a published artifact once, since the step's event may arrive after its result."""
        self._started(step)
        if step.fingerprint in self.unfinished:
            self.unfinished.remove(step.fingerprint)
            for watcher in self._watchers:
                watcher.finished(step, summary)

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Reports that a model failed."""
        for watcher in self._watchers:
            watcher.failed(name, results, why)

    def idle(self) -> None:
        """Lets the watchers redraw."""
        for watcher in self._watchers:
            watcher.idle()

    def _started(self, step: Step[Artifact]) -> None:
        if self._unstarted.pop(step.fingerprint, None):
            for watcher in self._watchers:
                watcher.started(step)
