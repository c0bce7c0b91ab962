"""Training runs on Ray whose last rank fails, and what they leave."""

import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
import ray.train

from pipeline.artifacts import EncodedDataset
from pipeline.context import Context
from pipeline.store.build import Build
from pipeline.training import loop, on_ray
from pipeline.training.updates import Update
from tests.support.ray_workers import workers_alive
from tests.support.tiny_training import with_fields
from workflows.engine.cluster import set_local_variables
from workflows.engine.joining import loopback_only

FAULTY_UPDATE = 2
RARELY = {"log_updates": 10, "validation_updates": 1000, "checkpoint_updates": 1000, "updates": 1000}
"""Most updates are not followed by any collective operation."""


def fail(error: type[Exception], *arguments: str) -> None:
    raise error(*arguments)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class FaultyBuild(Build):
    """Reaches every worker before its first collective. The last rank fails there, or within an update."""

    diary: Path
    """Each worker adds a file at its start, and the last rank one more at the fault."""
    fault: Callable[[], None]
    in_update: bool

    def input(self, folder: Path) -> Path:
        worker, patch = ray.train.get_context(), pytest.MonkeyPatch()
        (self.diary / f"start-{os.getpid()}").touch()
        if worker.get_world_rank() == worker.get_world_size() - 1:
            if not self.in_update:
                self._begin_fault()
            updated = loop.Training._update

            def update_or_fault(training: loop.Training, update: Update) -> None:
                if training.state.update + 1 == FAULTY_UPDATE:
                    patch.undo()  # this process may train another model
                    self._begin_fault()
                updated(training, update)

            patch.setattr(loop.Training, "_update", update_or_fault)
        return folder

    def _begin_fault(self) -> None:
        (self.diary / f"fault-{os.getpid()}").touch()
        self.fault()


class Ending(NamedTuple):
    error: Exception
    seconds: float
    """The time from the first fault until `train` raised."""
    starts: int
    """The number of workers started, over all attempts."""
    left: list[int]
    """Process ids of workers that are still alive."""


def ending(
    dataset: EncodedDataset, folder: Path, workers: int, fault: Callable[[], None], in_update: bool = True
) -> Ending:
    """Trains until the last worker fails; replaces lost workers once."""
    for path in (run := folder / "run", diary := folder / "diary"):
        path.mkdir()
    settings, before = with_fields(**RARELY, workers=workers), on_ray.MAX_FAILURES
    on_ray.MAX_FAILURES = 1
    try:
        on_ray.train(Context(run, build=FaultyBuild(run, diary, fault, in_update)), dataset, settings)
    except Exception as error:
        ended_s = time.time()
        seconds = [ended_s - path.stat().st_mtime for path in diary.glob("fault-*")]
        return Ending(error, max(seconds, default=0), len([*diary.glob("start-*")]), workers_left())
    finally:
        on_ray.MAX_FAILURES = before
    raise AssertionError("the run did not fail")


def workers_left(patience_s: float = 20) -> list[int]:
    """Lists Ray Train's workers still alive after a while: killed processes take a moment to go."""
    end_s = time.monotonic() + patience_s
    while (left := workers_alive("RayTrainWorker", "TrainController")) and time.monotonic() < end_s:
        time.sleep(0.05)
    return left


def ending_in_new_cluster(variables: dict[str, str], *arguments: Any) -> Ending:
    """Calls `ending` in a Ray cluster of its own, with one CPU."""
    os.environ |= variables
    set_local_variables()
    with loopback_only():
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return ending(*arguments)
    finally:
        ray.shutdown()
