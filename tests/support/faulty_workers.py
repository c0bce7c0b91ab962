"""Training runs on Ray in which one worker fails, and their leftovers.

`FaultyScratch` reaches every worker before its first collective, where it sets the worker's clock and error.
"""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray
import ray.train

from model.config import OptimizerConfig
from pipeline.errors import UserError
from pipeline.ray_private import loopback_only
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset
from pipeline.store.scratch import Scratch
from pipeline.training import loop
from pipeline.training.on_ray import train
from tests.support.ray_workers import workers_alive
from tests.support.tiny_training import with_fields
from workflows.engine.cluster import set_local_variables

Fault = Literal["not finite", "fetch", "update"]
FAULTY_UPDATE = 2
"""The first update after the excessive learning rate was applied."""
RARELY = {"log_updates": 10, "validation_updates": 1000, "checkpoint_updates": 1000, "updates": 1000}
"""Most updates are not followed by any collective operation."""


class Ending(NamedTuple):
    error: Exception
    seconds: float
    """The time from the fault until `train` raised."""
    starts: int
    """The number of workers started, over all attempts."""
    left: list[int]
    """Process ids of workers that are still alive."""


@dataclass
class FaultyScratch(Scratch):
    """Sets `loop.PROGRESS_S` of each rank. The last rank fails here (`fetch`) or within an update (`update`)."""

    progress_s: Sequence[float]
    fault: Fault
    error: Exception
    diary: Path
    """Each worker adds a file at its start, and the last rank one more at the fault."""

    def on_this_node(self, folder: Path) -> Path:
        worker = ray.train.get_context()
        (self.diary / f"start-{os.getpid()}").touch()
        loop.PROGRESS_S = self.progress_s[worker.get_world_rank()]
        if worker.get_world_rank() == worker.get_world_size() - 1:
            if self.fault == "fetch":
                self._begin_fault()
            loop.dropout_seed = self._seed_or_fault
        return folder

    def _seed_or_fault(self, seed: int, update: int, micro_batch: int) -> int:
        if update == FAULTY_UPDATE:
            self._begin_fault()
        return micro_batch

    def _begin_fault(self) -> None:
        (self.diary / f"fault-{os.getpid()}").touch()
        if self.fault != "not finite":
            raise self.error


def ending(
    dataset: EncodedDataset, folder: Path, progress_s: Sequence[float], fault: Fault, error: Exception | None = None
) -> Ending:
    """Trains with one worker per `progress_s` until the last one fails."""
    for path in (folder, diary := folder / "diary"):
        path.mkdir()
    optimizer = OptimizerConfig(learning_rate_scale=1e30) if fault == "not finite" else OptimizerConfig()
    settings: TrainingSettings = with_fields(**RARELY, workers=len(progress_s), optimizer=optimizer)
    run = folder / "run"
    run.mkdir()
    scratch = FaultyScratch(run, progress_s, fault, error or UserError(f"error of {fault}"), diary)
    raised: Exception | None = None
    try:
        train(Context(run, shared=scratch), dataset, settings)
    except Exception as error_raised:
        raised = error_raised
    ended_s = time.time()
    assert raised, "the run did not fail"
    fault_s = min(path.stat().st_mtime for path in diary.glob("fault-*"))
    return Ending(raised, ended_s - fault_s, len(list(diary.glob("start-*"))), workers_left())


def workers_left(patience_s: float = 20) -> list[int]:
    """Lists Ray Train's workers still alive after a while: killed processes take a moment to go."""
    end_s = time.monotonic() + patience_s
    while (left := workers_alive("RayTrainWorker", "TrainController")) and time.monotonic() < end_s:
        time.sleep(0.05)
    return left


def in_new_cluster(workers: int, *arguments: Any) -> Ending:
    """Calls `ending(*arguments)` in a separate Ray cluster that claims one CPU per worker."""
    set_local_variables()
    with loopback_only():
        ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return ending(*arguments)
    finally:
        ray.shutdown()
