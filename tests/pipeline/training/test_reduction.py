"""pipeline.training.reduction: order of addition and curve are the same whatever the number of workers."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from model.config import OptimizerConfig
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.training import loop
from pipeline.training.loop import Training
from pipeline.training.reduction import Addition, additions
from pipeline.training.workers import Workers
from tests.support.tiny_training import TINY, curve, free_port, start_processes, weights, with_fields

LAYOUTS = [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 4, 8))]
"""Workers that train together."""
THIRTY = with_fields(
    updates=30, checkpoint_updates=30, validation_updates=15, optimizer=OptimizerConfig(warmup_steps=400)
)
"""At TINY's own learning rate, 60 times as high, rounding grows to 3e-4 of the loss within 30 updates."""


@given(st.integers(1, 70))
def test_tree_takes_in_every_micro_batch_once(leaves: int) -> None:
    """The additions end in one sum of everything exactly once, and few sums exist at a time."""
    sums: dict[int, list[int]] = {}
    most = 0
    for node in additions(leaves):
        if isinstance(node, Addition):
            sums[node.into] += sums.pop(node.taken)
        else:
            sums[node] = [node]
        most = max(most, len(sums))
    assert sums.keys() == {0}
    assert sorted(sums[0]) == list(range(leaves))
    assert most <= (leaves - 1).bit_length() + 1


def test_tree_of_eight_lies_as_it_is_documented() -> None:
    """The order must never change: another one would give other bits to a continued training."""
    assert [str(node) if isinstance(node, int) else f"{node.into}+{node.taken}" for node in additions(8)] == (
        ["0", "4", "0+4", "2", "6", "2+6", "0+2", "1", "5", "1+5", "3", "7", "3+7", "1+3", "0+1"]
    )


def train_in_group(rank: int, size: int, dataset: EncodedDataset, given: TrainingSettings, folder: Path) -> None:
    """Runs one of `size` processes that train together."""
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", f"file://{folder}.group", world_size=size, rank=rank)
    Training(Workers(rank, size), dataset, given, folder).run()
    if size > 1:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`trained(3, exact=True)` -> the folder of the same 30 updates, with dropout, by three workers; trained once."""
    folder = tmp_path_factory.mktemp("layouts")

    def train(size: int, *, exact: bool, updates: int = THIRTY.updates, exchange: str = "float32") -> Path:
        place = folder / f"{size}-{exact}-{updates}-{exchange}"
        if not place.exists():
            place.mkdir()
            changed = {"exact_reduction": exact, "exchange": exchange}
            given = THIRTY.model_copy(update={**changed, "updates": updates, "checkpoint_updates": updates})
            start_processes(train_in_group, (size, dataset, given, place), size)
        return place

    return train


@pytest.mark.parametrize("size", LAYOUTS)
def test_workers_walk_the_same_curve(size: int, trained: Callable[..., Path]) -> None:
    """The losses of 30 updates with dropout, and of the dev split, agree with those of one worker to 1e-4."""
    alone = curve(trained(1, exact=False))
    together = curve(trained(size, exact=False))
    assert len(alone) == 30 + 2
    differences = [abs(ours / theirs - 1) for ours, theirs in zip(together, alone, strict=True)]
    print(f"{size} workers: loss {together[29]:.6f}, alone {alone[29]:.6f}; at most {max(differences):.1e} apart")
    assert max(differences) < 1e-4
    assert alone[29] < alone[0] - 0.2


def assert_same_bits(alone: Path, together: Path, updates: int) -> None:
    """Compares weights, Adam's state and training losses bit for bit."""
    for file in ("model.safetensors", "optimizer.safetensors"):
        checkpoints = [folder / "recovery" / f"{updates:08d}" / file for folder in (alone, together)]
        assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()
    assert curve(together)[:updates] == curve(alone)[:updates]


@pytest.mark.parametrize("size", LAYOUTS)
def test_exact_reduction_ends_in_the_same_bits(size: int, trained: Callable[..., Path]) -> None:
    """Weights, Adam's state and training losses of 2, 3, 4 and 8 workers are those of one, bit for bit."""
    assert_same_bits(trained(1, exact=True), trained(size, exact=True), THIRTY.updates)


def test_exact_reduction_with_a_micro_batch_a_worker(trained: Callable[..., Path]) -> None:
    """Eight workers for eight micro-batches: the first three updates end in the bits of one worker's."""
    assert_same_bits(trained(1, exact=True, updates=3), trained(8, exact=True, updates=3), 3)


def test_gradients_sent_in_bfloat16(trained: Callable[..., Path]) -> None:
    """Two workers follow the curve with other bits; alone nothing is sent, so nothing is rounded."""
    plain, rounded = (curve(trained(2, exact=False, exchange=name)) for name in ("float32", "bfloat16"))
    differences = [abs(ours / theirs - 1) for ours, theirs in zip(rounded, plain, strict=True)]
    print(f"loss {rounded[29]:.6f}, in float32 {plain[29]:.6f}; at most {max(differences):.1e} apart")
    assert max(differences) < 1e-4
    assert rounded[0] == plain[0]  # nothing has been rounded before the first loss
    assert weights(trained(2, exact=False, exchange="bfloat16"), 30) != weights(trained(2, exact=False), 30)
    assert_same_bits(trained(1, exact=False), trained(1, exact=False, exchange="bfloat16"), THIRTY.updates)


def leave_after_an_update(rank: int, port: int, dataset: EncodedDataset, folder: Path) -> None:
    """Trains as one of two workers, of which the second computes one update and then nothing for 10 s."""
    torch.set_num_threads(1)
    loop.UPDATE_TIMEOUT = timedelta(seconds=2)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=rank, timeout=timedelta(minutes=5))
    training = Training(Workers(rank, 2), dataset, TINY, folder)
    with training.writer:
        training.train(1)
        if rank:
            time.sleep(10)
        training.train(2)


def test_a_worker_that_hangs_is_not_waited_for_long(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Once the workers train, a collective ends by the shorter limit; before, it may wait for compilers."""
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match=r"(?i)timed out"):
        start_processes(leave_after_an_update, (free_port(), dataset, tmp_path), 2)
