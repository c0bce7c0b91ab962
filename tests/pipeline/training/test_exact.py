"""pipeline.training.workers: order of addition and curve do not depend on the number of workers."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import OptimizerConfig
from pipeline.artifacts import EncodedDataset
from pipeline.training import loop
from pipeline.training.loop import Training
from pipeline.training.workers import ExactSum, Workers, depth_first
from tests.support.tiny_training import TINY, curve, free_port, group, start_processes, train_in_processes, with_fields

LAYOUTS = [3, *(pytest.param(size, marks=pytest.mark.slow) for size in (2, 4, 8))]
"""Numbers of workers."""
UPDATES = 12
SLOW = with_fields(
    updates=UPDATES, checkpoint_updates=UPDATES, validation_updates=6, optimizer=OptimizerConfig(warmup_steps=400)
)
"""At TINY's own learning rate, 60 times as high, rounding grows to 3e-4 of the loss within 30 updates."""


def in_a_tree(values: Sequence[float], first: int = 0, stride: int = 1) -> float:
    """Adds values in float32 in the documented order, which must never change: resumed runs rely on it."""
    if first + stride >= len(values):
        return values[first]
    left, right = in_a_tree(values, first, 2 * stride), in_a_tree(values, first + stride, 2 * stride)
    return float(np.float32(left) + np.float32(right))


@given(st.integers(1, 70), st.randoms())
def test_parts_are_added_in_a_tree(n: int, random: Random) -> None:
    """The sum is bit-identical to the tree's for any terms, and few partial sums exist at a time."""
    values = [float(np.float32(random.uniform(-1, 1))) for _ in range(n)]
    sums = torch.zeros(1)
    exact, most = ExactSum(Workers(), sums), 0
    for number in depth_first(range(n)):
        sums += values[number]
        exact.add(number)
        most = max(most, len(exact._partial))
    exact.reduce(n)
    assert sums.item() == in_a_tree(values)
    assert most <= (n - 1).bit_length() + 1


@pytest.fixture(scope="module")
def trained(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`trained(3, exact=True)` -> the folder of the same updates, with dropout, by three workers. Each runs once."""
    folder = tmp_path_factory.mktemp("layouts")

    def train(size: int, *, exact: bool, pass_tokens: int = SLOW.pass_tokens) -> Path:
        place = folder / f"{size}-{exact}-{pass_tokens}"
        if not place.exists():
            settings = SLOW.model_copy(update={"exact_reduction": exact, "pass_tokens": pass_tokens})
            train_in_processes(size, dataset, settings, place)
        return place

    return train


MANY = [(size, SLOW.pass_tokens) for size in (2, 4, 5, 8, 16)]


@pytest.mark.parametrize(
    ("size", "pass_tokens"), [(3, 0), (1, 0), (1, 295), *(pytest.param(*each, marks=pytest.mark.slow) for each in MANY)]
)
def test_workers_and_passes_walk_the_same_curve(size: int, pass_tokens: int, trained: Callable[..., Path]) -> None:
    """All training losses, with dropout, and dev losses agree to 1e-4 with those of one worker in three passes."""
    alone = curve(trained(1, exact=False))
    together = curve(trained(size, exact=False, pass_tokens=pass_tokens))
    assert len(alone) == UPDATES + 2
    differences = [abs(ours / theirs - 1) for ours, theirs in zip(together, alone, strict=True)]
    assert max(differences) < 1e-4
    assert alone[-3] < alone[0]


@pytest.mark.parametrize("size", LAYOUTS)
def test_exact_reduction_ends_in_the_same_bits(size: int, trained: Callable[..., Path]) -> None:
    alone, together = trained(1, exact=True), trained(size, exact=True)
    for file in ("model.safetensors", "optimizer.safetensors"):
        checkpoints = [folder / "recovery" / f"{UPDATES:08d}" / file for folder in (alone, together)]
        assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()
    assert curve(together)[:UPDATES] == curve(alone)[:UPDATES]


def leave_after_an_update(rank: int, port: int, dataset: EncodedDataset, folder: Path) -> None:
    """Trains as one of two workers. The second computes one update and then nothing for 10 s."""
    loop.UPDATE_TIMEOUT = timedelta(seconds=2)
    with group(rank, 2, port) as workers:
        training = Training(workers, dataset, TINY, folder)
        with training.writer:
            training.train(1)
            if rank:
                time.sleep(10)
            training.train(2)


def test_a_worker_that_hangs_is_not_waited_for_long(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Once the workers train, collectives have the shorter timeout. Before, they may wait for compilers."""
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match=r"(?i)timed out"):
        start_processes(leave_after_an_update, (free_port(), dataset, tmp_path), 2)
