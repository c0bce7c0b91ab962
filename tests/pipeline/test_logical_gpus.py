"""Training and decoding on GPUs that Ray only counts: who gets which, where controllers run, and nothing is starved.

The cluster is Ray's own, with a head without GPUs and a node with two (tests.support.logical_gpus). All computation
is on CPUs, so results are bit-identical to runs on CPUs.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.artifacts import Checkpoint, EncodedDataset
from pipeline.settings import DecodingSettings
from tests.support import logical_gpus
from tests.support.tiny_checkpoint import make_set
from tests.support.tiny_profile import TABLE_3, options
from tests.support.tiny_training import metrics, weights, with_fields

pytestmark = pytest.mark.ray


@contextmanager
def started(gpus: int) -> Iterator[ProcessPoolExecutor]:
    """A process that has started and joined the cluster."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), logical_gpus.start, [gpus]) as process:
        yield process
        process.submit(logical_gpus.stop).result()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessPoolExecutor]:
    with started(gpus=2) as process:
        yield process


def test_one_gpu_each(cluster: ProcessPoolExecutor, dataset: EncodedDataset, two_workers: Path, tmp_path: Path) -> None:
    """By default, there are as many workers as GPUs. Each sees both, for NCCL, and uses its rank's."""
    settings, folder = with_fields(workers=0, device="auto"), tmp_path / "run"
    placed, on_head, node = cluster.submit(logical_gpus.trained, dataset, settings, folder).result()
    assert [worker.rank for worker in placed] == [0, 1]
    for worker in placed:
        assert worker.n_workers == 2
        assert worker.cpus == settings.threads
        assert worker.node == node
        assert worker.visible.split(",") == ["0", "1"]
        assert worker.device == f"cuda:{worker.visible.split(',').index(*worker.gpus)}"
    assert {worker.device for worker in placed} == {"cuda:0", "cuda:1"}
    assert "TrainController" in {title.split(".")[0] for title in on_head}
    assert weights(folder) == weights(two_workers)
    assert metrics(folder) == metrics(two_workers)


def test_decoding_and_a_training_share_two_gpus(
    cluster: ProcessPoolExecutor, dataset: EncodedDataset, one_worker: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Four actors request half a GPU each while a run holds one GPU: two do all the work, and the run continues."""
    decoding = DecodingSettings(max_extra_tokens=5, workers=4)
    training, text = with_fields(workers=1, device="gpu"), make_set(tmp_path / "second", "second")
    arguments = dataset, training, checkpoint, text, decoding, tmp_path
    run, hypotheses, (worker,) = cluster.submit(logical_gpus.decoded_beside, *arguments).result()
    assert (worker.rank, worker.n_workers) == (0, 1)
    assert [worker.visible] == worker.gpus  # it does not see the other GPU
    assert hypotheses.load().sentences == 42
    assert weights(run.folder) == weights(one_worker)


def test_models_share_a_gpu_and_its_processes(tmp_path: Path) -> None:
    """Two runs at a time use one GPU, in processes that serve several runs. Table 3's trials run on the head."""
    settings = {**TABLE_3, "grid.training.gpu_share": 0.5, "grid.base_seeds": 4}
    command = ["-m", "workflows.reproduce_table3", *options(settings), "--rows", "base", "--store", str(tmp_path)]
    with started(gpus=1) as cluster:
        seen = cluster.submit(logical_gpus.watched, command).result()
    assert seen.gpus == 1
    assert seen.runs == 2
    assert len(seen.trained_in) < 4
    assert not {title for title in seen.on_head if "single_worker" in title}
    trials = {title for title in seen.on_head | seen.on_node if "ImplicitFunc" in title or "_run_trial" in title}
    assert trials
    assert trials <= seen.on_head - seen.on_node
