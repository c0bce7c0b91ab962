"""Events of steps: posted to an actor (`Board`) by those who compute, and forwarded to the watchers (`Relay`)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.training.layout import lacking
from workflows.engine.cluster import WAITING_S
from workflows.engine.dag import Step, in_order
from workflows.engine.interface import Watcher

ANSWER_S = 600.0
"""How long the board may take to answer on a loaded machine. Ray may never restart one killed for lack of memory."""


def needs(step: Step[Artifact]) -> dict[str, float]:
    """Returns what a step reserves: CPUs, and its share of a GPU if the cluster has any."""
    gpus = step.stage.gpus if ray.cluster_resources().get("GPU", 0) else 0
    return {"CPU": step.stage.cpus, **({"GPU": gpus} if gpus else {})}


class Board:
    """A Ray actor that collects the events of all steps; the driver fetches them."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []
        self._warnings: dict[str, list[str]] = {}

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
        self._steps: dict[str, Step[Artifact]] = {}
        self._submitted, self._unstarted, self._waiting = set[str](), set[str](), set[str]()
        self.unfinished = set[str]()
        """The fingerprints of steps that have not finished, cached ones included."""
        self.results: Mapping[str, Sequence[Step[Artifact]]] = {}
        """The final steps of models, by name."""
        self.failures: dict[str, str] = {}
        """Why models have failed, by name."""
        self._watchers, self._told_s = watchers, time.monotonic()
        self.expect(steps)

    def expect(self, steps: Iterable[Step[Artifact]]) -> None:
        """Registers steps that may post events, with all inputs, of which some may be damaged in the meantime."""
        new = {step.fingerprint: step for step in in_order(steps) if step.fingerprint not in self._steps}
        self._steps |= new
        self._unstarted |= new.keys()
        self.unfinished |= new.keys()

    def fetch(self) -> None:
        """Forwards the events since the last call. Raises UserError if the board does not answer."""
        try:
            events = ray.get(self.board.fetch.remote(), timeout=ANSWER_S)
        except ray.exceptions.GetTimeoutError:
            lost = f"Ray's process for events has not answered for {ANSWER_S:g} s, perhaps for lack of memory"
            raise UserError(f"{lost}; run the same command again to continue where it stopped") from None
        for key, event in events:
            if "failed" in event:
                self.failed(key, event["failed"])
            elif "submitted" in event:
                self._submitted.add(key)
            else:
                self._forward(self._steps[key], event)

    def _forward(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Forwards an event. A step that several models need starts and finishes once."""
        if step.fingerprint in self._unstarted:
            self._unstarted.remove(step.fingerprint)
            for watcher in self._watchers:
                watcher.started(step)
        if "finished" in event:
            self._submitted.discard(step.fingerprint)
            for watcher in self._watchers if step.fingerprint in self.unfinished else ():
                watcher.finished(step, event["finished"])
            self.unfinished.discard(step.fingerprint)
        elif "started" not in event:
            for watcher in self._watchers:
                watcher.event(step, event)

    def failed(self, name: str, why: str) -> None:
        """Reports once that a model failed. Its runs and the steps behind them are cancelled, so they do not wait."""
        if name not in self.failures:
            self.failures[name] = why
            self._submitted -= {step.fingerprint for step in in_order(self.results[name]) if step.is_trained}
            for watcher in self._watchers:
                watcher.failed(name, self.results[name], why)

    def follow(self) -> None:
        """Forwards new events and lets the watchers redraw. Tells them each minute what steps wait for."""
        self.fetch()
        if time.monotonic() - self._told_s > WAITING_S:
            self._tell_waiting()
        for watcher in self._watchers:
            watcher.idle()

    def _tell_waiting(self) -> None:
        """Reports steps that no node can hold any more, and those that had no room since the last report."""
        nodes, free, total = ray.nodes(), ray.available_resources(), ray.cluster_resources().get("CPU", 0)
        before, self._waiting, self._told_s = self._waiting, set(), time.monotonic()
        for step in [self._steps[fingerprint] for fingerprint in self._submitted]:
            lack = lacking(needs(step) | ({} if total else {"CPU": 1}), nodes)  # nothing runs without a CPU
            if lack or step.fingerprint in self._unstarted:
                self._waiting.add(step.fingerprint)
                busy = f"{step.stage.cpus:g} of {total:g} CPUs, of which {free.get('CPU', 0):g} are free"
                for watcher in self._watchers if lack or step.fingerprint in before else ():
                    watcher.event(step, {"waiting": f"needs {lack or busy}"})
