"""training.reduction: one order of addition whatever the layout, and one curve whatever the number of workers."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import OptimizerConfig
from pipeline.store.artifacts import EncodedDataset
from pipeline.training.loop import run
from pipeline.training.reduction import Addition, additions
from pipeline.training.worker_group import WorkerGroup
from tests.support.tiny_training import curve, start_processes, weights, with_fields

LAYOUTS = (1, 2, 3, 4, 8)
THIRTY = with_fields(
    updates=30, checkpoint_updates=30, validation_updates=15, optimizer=OptimizerConfig(warmup_steps=400)
)
"""At TINY's own learning rate, 60 times as high, rounding grows to 3e-4 of the loss within 30 updates."""


@settings(deadline=None)
@given(st.integers(1, 70))
def test_tree_takes_in_every_micro_batch_once(leaves: int) -> None:
    """The joints end in one sum of all, never of anything twice, and few sums exist at a time."""
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
    """The order is part of what is stored: another one would give other bits to a continued training."""
    assert [str(node) if isinstance(node, int) else f"{node.into}+{node.taken}" for node in additions(8)] == (
        ["0", "4", "0+4", "2", "6", "2+6", "0+2", "1", "5", "1+5", "3", "7", "3+7", "1+3", "0+1"]
    )


def train_in_layouts(rank: int, dataset: EncodedDataset, folder: Path) -> None:
    """One of eight processes: takes part in each layout that has a place for it, with both ways to add."""
    torch.set_num_threads(1)
    for exact in (False, True):
        for size in LAYOUTS:
            if rank < size:
                name = f"{size}-{exact}"
                if size > 1:
                    dist.init_process_group("gloo", f"file://{folder / name}.group", world_size=size, rank=rank)
                (folder / name).mkdir(exist_ok=True)
                settings = THIRTY.model_copy(update={"exact_reduction": exact})
                run(WorkerGroup(rank, size), dataset, settings, folder / name)
                if size > 1:
                    dist.destroy_process_group()


@pytest.fixture(scope="module")
def layouts(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `<workers>-<exact>`: the same 30 updates, dropout on, in every layout."""
    folder = tmp_path_factory.mktemp("layouts")
    start_processes(train_in_layouts, (dataset, folder), max(LAYOUTS))
    return folder


@pytest.mark.parametrize("size", LAYOUTS[1:])
def test_workers_walk_the_same_curve(size: int, layouts: Path) -> None:
    """Losses of 30 updates with dropout, and of the dev split, are those of one worker to 1e-4."""
    alone = curve(layouts / "1-False")
    together = curve(layouts / f"{size}-False")
    assert len(alone) == 30 + 2
    differences = [abs(ours / theirs - 1) for ours, theirs in zip(together, alone, strict=True)]
    print(f"{size} workers: loss {together[29]:.6f}, alone {alone[29]:.6f}; at most {max(differences):.1e} apart")
    assert max(differences) < 1e-4
    assert alone[29] < alone[0] - 0.2


@pytest.mark.parametrize("size", LAYOUTS[1:])
def test_exact_reduction_ends_in_the_same_bits(size: int, layouts: Path) -> None:
    """Weights and Adam's state of 2, 3, 4 and 8 workers are those of one, bit by bit, as are all training losses."""
    for file in ("model.safetensors", "optimizer.safetensors"):
        alone, together = (layouts / f"{n}-True/checkpoints/{THIRTY.updates:08d}" / file for n in (1, size))
        assert together.read_bytes() == alone.read_bytes()
    assert curve(layouts / f"{size}-True")[:30] == curve(layouts / "1-True")[:30]


def test_order_of_addition_tells_in_the_bits(layouts: Path) -> None:
    """Without it the bits differ between layouts: the equality above is its work, not that of tiny numbers."""
    bits = {weights(layouts / f"{size}-False", THIRTY.updates) for size in LAYOUTS}
    assert len(bits) > 1
    assert curve(layouts / "1-True") == pytest.approx(curve(layouts / "1-False"), rel=1e-4)
