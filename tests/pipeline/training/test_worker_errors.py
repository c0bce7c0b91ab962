"""pipeline.training.on_ray and loop: an error of any worker ends the run on all workers at once."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from ray.train import WorkerGroupError

from pipeline.errors import UserError
from pipeline.store.artifacts import EncodedDataset
from pipeline.training import on_ray
from tests.support.faulty_workers import Ending, Fault, ending, in_new_cluster

MAX_S = 60
"""Longest time from a worker's error to the end of all workers. Collectives would wait for ten minutes."""
NEVER_S = 1e9
MESSAGES = {"not finite": r"update 2 \(epoch 0\): the loss is", "fetch": "error of fetch", "update": "error of update"}


def check(ended: Ending, workers: int, fault: Fault) -> None:
    """Asserts that a run ended with the fault's one-line error, in time, without a retry or leftover processes."""
    assert type(ended.error) is UserError
    with pytest.raises(UserError, match=f"^{MESSAGES[fault]}[^\n]*$"):
        raise ended.error
    assert ended.seconds < MAX_S
    assert ended.starts == workers
    assert ended.left == []


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("fault", ["fetch", "update"])
def test_user_error_of_one_worker_ends_both(fault: Fault, dataset: EncodedDataset, tmp_path: Path) -> None:
    """An error of rank 1, before the first all-reduce or in mid-update, ends both workers."""
    check(ending(dataset, tmp_path / "training", (1, 1), fault), 2, fault)


@pytest.mark.ray
def test_loss_that_is_not_finite_ends_four_workers(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Four workers, showing progress at different times, share this machine's cores, however few."""
    arguments = 4, dataset, tmp_path / "training", (NEVER_S, 0, 0.05, NEVER_S), "not finite"
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        check(process.submit(in_new_cluster, *arguments).result(), 4, "not finite")


@pytest.mark.usefixtures("ray_cluster")
def test_other_error_is_retried(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that may be the machine's fault is retried, without waiting for the peer stuck in an all-reduce."""
    monkeypatch.setattr(on_ray, "MAX_FAILURES", 1)
    ended = ending(dataset, tmp_path / "training", (1, 1), "update", ValueError("a fault of the machine"))
    assert isinstance(ended.error, WorkerGroupError)
    assert "a fault of the machine" in str(ended.error)
    assert ended.starts == 2 * 2
    assert ended.left == []
