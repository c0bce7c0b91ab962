"""pipeline.training.on_ray and loop: an error of any worker ends the run on all workers at once; a loss is retried."""

import multiprocessing
import re
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pipeline.artifacts import EncodedDataset
from pipeline.errors import LostProcessError, UserError
from tests.support.faulty_workers import Ending, die, ending, ending_in_new_cluster, fail

MAX_S = 60
"""Longest time from a worker's error to the end of all workers. Collectives would wait for ten minutes."""


class OddError(Exception):
    """It cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def check(ended: Ending, starts: int, error: type[Exception], message: str) -> None:
    """Asserts that a run ended with a one-line error, in time, without leftover processes."""
    assert type(ended.error) is error
    assert re.fullmatch(message, str(ended.error))
    assert ended.seconds < MAX_S
    assert ended.starts == starts
    assert ended.left == []


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("workers", "fault", "in_update", "error", "message"),
    [
        (2, partial(fail, UserError, "no such shard"), False, UserError, "no such shard"),
        (2, partial(fail, KeyError, "a bug"), True, KeyError, "'a bug'"),
        (1, partial(fail, OddError, "a", "bug"), True, RuntimeError, "OddError: a bug"),
    ],
)
def test_error_of_one_worker_ends_all(
    workers: int,
    fault: Callable[[], None],
    in_update: bool,
    error: type[Exception],
    message: str,
    dataset: EncodedDataset,
    tmp_path: Path,
) -> None:
    """An error of the last rank's code, in mid-update or before, is raised with its traceback and not retried."""
    ended = ending(dataset, tmp_path, workers, fault, in_update)
    check(ended, workers, error, message)
    assert "in _begin_fault\n" in "".join(traceback.format_exception(ended.error))


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_lost_workers_are_replaced_up_to_a_limit(workers: int, dataset: EncodedDataset, tmp_path: Path) -> None:
    """If they die each time, the error is no bug of the step, so a retry may help."""
    ended = ending(dataset, tmp_path, workers, die)
    message = r"Ray lost a process or a node \([^\n]*: rerun the same command"
    check(ended._replace(seconds=0), 2 * workers, LostProcessError, message)


@pytest.mark.ray
def test_a_worker_killed_for_want_of_memory_ends_the_run(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Ray's memory monitor, here of 1% of the memory, kills it and its replacement; the line has its memory."""
    monitor = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        arguments = monitor, dataset, tmp_path, 1, partial(time.sleep, MAX_S)
        error = process.submit(ending_in_new_cluster, *arguments).result().error
    assert type(error) is LostProcessError
    assert re.fullmatch(r"out of memory: Ray killed .*single_worker \([\d.]+ GB\).* of [\d.]+ GB in use.*", str(error))
