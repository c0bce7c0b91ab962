"""pipeline.training.updates: the next epoch's plan is ready before its first update, and changes no batch."""

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.batch import KERNEL_BLOCK
from model.flops import training_flop
from pipeline.corpora.lengths import LENGTHS, draw_lengths
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training import updates as updates_module
from pipeline.training.checkpoints import list_folders
from pipeline.training.loop import Training
from pipeline.training.updates import AHEAD_UPDATES, Updates, packed_size
from pipeline.training.workers import Workers
from tests.support.tiny_training import EPOCH_UPDATES, TINY, with_fields


class OneOfTwo(Workers):
    """A worker whose peer is like itself, or plans differently."""

    differs = False

    def gather_objects(self, value: Any) -> list[Any]:
        """Returns both workers' values."""
        return [value, "another plan" if self.differs and value else value]


def test_the_next_epoch_is_planned_during_this_one(dataset: EncodedDataset) -> None:
    """Its plan is computed before its first update is requested, is used, and yields the batches of a late plan."""
    split = EncodedSplit.open(dataset, "train")
    updates = Updates(split, TINY, Workers(), torch.float32)
    reading = updates.between(0, 2 * EPOCH_UPDATES)
    first = next(reading)
    assert AHEAD_UPDATES < EPOCH_UPDATES - 1, "the next epoch's first update would already be requested"
    planned = updates._plans[1]
    expected = plan_epoch(split.source_lengths, split.target_lengths, TINY, epoch=1)
    assert (planned.result(timeout=60).rows == expected.rows).all()
    read = [first, *reading]
    assert updates._plans == {1: planned}, "the plan was computed again, or one that no update needs"
    for epoch in (0, 1):
        plan = plan_epoch(split.source_lengths, split.target_lengths, TINY, epoch)
        for update, parts in zip(read[epoch * EPOCH_UPDATES :], plan, strict=False):
            assert len(update.mine) == len(parts)
            for micro_batch, rows in zip(update.mine, parts, strict=True):
                source_BS, target_BT = split.batch(rows)
                assert torch.equal(micro_batch.batch.source.tokens_N, source_BS.flatten())
                assert torch.equal(micro_batch.batch.targets_N, target_BT.flatten())
    assert len(read) == 2 * EPOCH_UPDATES


def test_every_worker_knows_the_size_of_a_whole_update(dataset: EncodedDataset) -> None:
    """Tokens, padding and FLOP cover all micro-batches, although a worker reads only its own."""
    split, two = EncodedSplit.open(dataset, "train"), TINY.model_copy(update={"micro_batches": 2})
    plan = plan_epoch(split.source_lengths, split.target_lengths, two, epoch=0)
    for rank in (0, 1):
        (update,) = Updates(split, two, OneOfTwo(rank, 2), torch.float32).between(0, 1)
        assert [micro_batch.number for micro_batch in update.mine] == [rank]
        lengths = [(split.source_lengths[rows], split.target_lengths[rows]) for rows in plan[0]]
        assert update.flop == sum(training_flop(two.model, *of_rows) for of_rows in lengths)
        sides = chain.from_iterable(lengths)
        assert update.computed_tokens == sum(len(side) * int(side.max()) for side in sides)


def test_a_part_of_an_epoch_is_read_without_another_plan(dataset: EncodedDataset) -> None:
    """Updates that end within an epoch need no plan of the next. Continuing in it computes no plan again."""
    updates = Updates(EncodedSplit.open(dataset, "train"), TINY, Workers(), torch.float32)
    planned = updates._plans[0]
    assert len(list(updates.between(0, 3))) == 3
    assert len(list(updates.between(3, EPOCH_UPDATES))) == EPOCH_UPDATES - 3
    assert updates._plans == {0: planned}


def test_nodes_that_plan_differently_do_not_train(dataset: EncodedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes with different plans would skip some pairs and repeat others."""
    monkeypatch.setattr(OneOfTwo, "differs", True)
    with pytest.raises(UserError, match="the nodes plan epoch 0 differently; install the same versions"):
        Updates(EncodedSplit.open(dataset, "train"), TINY, OneOfTwo(0, 2), torch.float32)


def test_closing_lets_go_of_shared_plans(
    dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the largest micro-batches nor the updates already read keep a plan on the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    updates = Updates(EncodedSplit.open(dataset, "train"), TINY, OneOfTwo(0, 2), torch.float32)
    reading = updates.between(0, 2 * EPOCH_UPDATES)
    update = next(reading)
    updates._plans[1].result()
    assert len([*tmp_path.glob("aiayn-plans-*/*")]) == 2
    reading.close()
    updates.close()
    assert [*tmp_path.glob("aiayn-plans-*/*")] == []
    assert update.mine
    assert updates.largest


@pytest.mark.usefixtures("one_thread", "many_recoveries")
@pytest.mark.parametrize("done", [EPOCH_UPDATES, EPOCH_UPDATES + 1, 2 * EPOCH_UPDATES - 1])
def test_a_run_that_goes_on_in_an_epoch_plans_no_earlier_one(
    dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Resuming at an epoch's start, after its first or before its last update plans that epoch, then the next."""
    settings = with_fields(updates=3 * EPOCH_UPDATES, validation_updates=100, checkpoint_updates=done)
    training = Training(Workers(), dataset, settings, tmp_path)
    with training.writer:
        training.train(done)
    assert list_folders(tmp_path / "recovery")[-1].name == f"{done:08d}"
    planned = []

    def recorded(*arguments: Any) -> EpochPlan:
        planned.append(arguments[3])
        return plan_epoch(*arguments)

    monkeypatch.setattr(updates_module, "plan_epoch", recorded)
    resumed = Training(Workers(), dataset, settings, tmp_path)
    assert resumed.state.update == done
    assert planned == [1]
    with resumed.writer:
        resumed.train(2 * EPOCH_UPDATES)
        assert planned == [1]
        resumed.train(2 * EPOCH_UPDATES + 1)
    assert planned == [1, 2]


@pytest.mark.parametrize("longest", [None, 256])
def test_a_fifth_of_the_blocks_that_attention_launches_is_needed(longest: int | None) -> None:
    """With WMT14's lengths and the paper's updates, even if one sentence has the maximum number of tokens."""
    source, target = draw_lengths(LENGTHS["wmt14"], 100_000, np.random.default_rng(1))
    source[0] = longest or source[0]
    plan = plan_epoch(source, target, TrainingSettings(), epoch=0)
    size, n_micro_batches = packed_size(plan), len(plan.bounds) - 1
    for lengths in (source, target):
        needed = (-(-lengths // KERNEL_BLOCK)).sum() / n_micro_batches
        assert needed >= (0.4 if longest is None else 0.2) * size.blocks
