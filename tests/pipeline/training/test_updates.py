"""pipeline.training.updates: the next epoch's plan is ready before its first update, and changes no batch."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from model.batch import Batch, PackedSize
from model.config import PAD_ID
from model.flops import training_flop
from pipeline.artifacts import EncodedDataset
from pipeline.errors import UserError
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training import updates as updates_module
from pipeline.training.checkpoints import list_folders
from pipeline.training.loop import Training
from pipeline.training.preflight import capture
from pipeline.training.updates import AHEAD_UPDATES, Form, Updates
from pipeline.training.workers import Workers
from tests.support.tiny_training import EPOCH_UPDATES, TINY, train_as, with_fields


class OneOfMany(Workers):
    """A worker whose peers are like itself, or plan differently."""

    differs = False

    def gather_objects(self, value: Any) -> list[Any]:
        return [value, "another plan" if self.differs and value else value]


def test_the_next_epoch_is_planned_during_this_one(dataset: EncodedDataset) -> None:
    """Its plan is computed before its first update is requested, is used, and yields the batches of a late plan."""
    split = EncodedSplit.open(dataset, "train")
    updates = Updates(split, with_fields(pass_tokens=0), Workers(), torch.float32, "blocks")
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
        for number, update in enumerate(read[epoch * EPOCH_UPDATES : (epoch + 1) * EPOCH_UPDATES]):
            ((_, (batch,)),) = update.mine
            sides = [split.batch(rows) for rows in plan[number]]
            assert torch.equal(batch.source.tokens_N, torch.cat([source_BS.flatten() for source_BS, _ in sides]))
            assert torch.equal(batch.targets_N, torch.cat([target_BT.flatten() for _, target_BT in sides]))
    assert len(read) == 2 * EPOCH_UPDATES


def pairs_of(updates: Updates, update: int) -> list[list[tuple[int, ...]]]:
    """Returns the sources in each batch of an update, as token ids."""
    (read,) = updates.between(update, update + 1)
    found = []
    for part in read.mine:
        for batch in part.batches:
            starts = (batch.source.positions_N == 0).nonzero().flatten().tolist()
            tokens = [sentence[sentence != PAD_ID] for sentence in batch.source.tokens_N.tensor_split(starts[1:])]
            found.append([tuple(sentence.tolist()) for sentence in tokens if len(sentence)])
    return found


def tokens_of(batch: Batch) -> int:
    return batch.source.tokens_N.numel() + batch.targets_N.numel()


@pytest.mark.parametrize("form", ["padded", "blocks", "packed"])
def test_workers_and_passes_compute_each_pair_once(dataset: EncodedDataset, form: Form) -> None:
    """Any number of workers, in any number of passes, has the pairs of the update, and the size of the whole."""
    split = EncodedSplit.open(dataset, "train")
    plan = plan_epoch(split.source_lengths, split.target_lengths, TINY, epoch=0)
    expected = sorted(tuple(source[source != PAD_ID].tolist()) for source in split.batch(np.concatenate(plan[0]))[0])
    for size, divided, exact in ((1, 0, False), (1, 2, False), (3, 1, False), (16, 0, False), (3, 0, True)):
        settings = with_fields(exact_reduction=exact, pass_tokens=0)
        found, parts, made_tokens, computed_tokens = [], [], 0, []
        for rank in range(size):
            updates = Updates(split, settings, OneOfMany(rank, size), torch.float32, form)
            for _ in range(divided):
                assert updates.divide() or form == "padded"  # which has a pass for each unit
            found += [pair for batch in pairs_of(updates, 0) for pair in batch]
            (update,) = updates.between(0, 1)
            parts += [part.number for part in update.mine]
            made_tokens += sum(tokens_of(batch) for part in update.mine for batch in part.batches)
            computed_tokens.append(update.computed_tokens)
            assert update.target_tokens == plan.real_tokens[plan.dealt[0], 1].sum()
        assert sorted(found) == expected
        assert {*computed_tokens} == {made_tokens}
        assert sorted(parts) == [*range(8 if exact else size)]


def test_flop_are_those_of_all_pairs(dataset: EncodedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted a few pairs at a time."""
    monkeypatch.setattr(updates_module, "COUNTED_PAIRS", 7)
    split = EncodedSplit.open(dataset, "train")
    updates = Updates(split, TINY, Workers(), torch.float32)
    expected = training_flop(TINY.model, split.source_lengths, split.target_lengths)
    assert updates.mean_flop * EPOCH_UPDATES == pytest.approx(expected)


@pytest.mark.parametrize("pass_tokens", [0, 700, TINY.budget_tokens])
def test_no_padded_pass_of_a_run_is_larger_than_those_tried_first(dataset: EncodedDataset, pass_tokens: int) -> None:
    settings = with_fields(pass_tokens=pass_tokens, updates=30 * EPOCH_UPDATES)
    updates = Updates(EncodedSplit.open(dataset, "train"), settings, Workers(), torch.float32, "padded")
    run = updates.between(0, settings.updates)
    passes = [batch for update in run for part in update.mine for batch in part.batches]
    for size in (tokens_of, lambda batch: batch.source.tokens_N.numel(), lambda batch: batch.targets_N.numel()):
        assert max(map(size, updates.largest())) == max(map(size, passes))


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads by Linux's /proc")
def test_reading_starts_no_openmp_threads(dataset: EncodedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of a second thread, OpenMP has more than CPUs, and lets them sleep: updates took 1.5 times as long."""
    started = []
    read = Updates._batches

    def counted(*arguments: Any) -> Any:
        before = len(os.listdir("/proc/self/task"))
        batches = read(*arguments)
        started.append(len(os.listdir("/proc/self/task")) - before)
        return batches

    monkeypatch.setattr(Updates, "_batches", counted)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        large = with_fields(budget_tokens=7000, pass_tokens=7000)
        updates = Updates(EncodedSplit.open(dataset, "train"), large, Workers(), torch.float32, "blocks")
        assert len(list(updates.between(0, 2))) == 2
    finally:
        torch.set_num_threads(n_threads)
    assert max(started) <= 0


def test_a_packed_batch_that_is_too_large_is_divided(dataset: EncodedDataset) -> None:
    split = EncodedSplit.open(dataset, "train")
    updates = Updates(split, with_fields(pass_tokens=0), Workers(), torch.float32, "packed")
    (whole,) = pairs_of(updates, 0)
    updates.packed_size = PackedSize.of(TINY.budget_tokens // 2 + 200, len(whole), split.longest_tokens)
    halves = pairs_of(updates, 0)
    assert len(halves) == 2
    assert sorted(halves[0] + halves[1]) == sorted(whole)


def test_nodes_that_plan_differently_do_not_train(dataset: EncodedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes with different plans would skip some pairs and repeat others."""
    monkeypatch.setattr(OneOfMany, "differs", True)
    with pytest.raises(UserError, match="the nodes plan epoch 0 differently; install the same versions"):
        Updates(EncodedSplit.open(dataset, "train"), TINY, OneOfMany(0, 2), torch.float32)


@pytest.mark.usefixtures("many_recoveries")
@pytest.mark.parametrize("done", [EPOCH_UPDATES, EPOCH_UPDATES + 1, 2 * EPOCH_UPDATES - 1])
def test_a_run_that_goes_on_in_an_epoch_plans_no_earlier_one(
    dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Resuming at an epoch's start, after its first or before its last update plans that epoch, then the next."""
    settings = with_fields(updates=3 * EPOCH_UPDATES, validation_updates=100, checkpoint_updates=done)
    train_as(Workers(), dataset, settings, tmp_path, done)
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


def test_a_graph_that_lacks_memory_is_recorded_of_smaller_passes(dataset: EncodedDataset) -> None:
    settings, rows = with_fields(pass_tokens=TINY.budget_tokens), list[int]()
    updates = Updates(EncodedSplit.open(dataset, "train"), settings, Workers(), torch.float32, "packed")

    def record(batches: list[Batch]) -> None:
        rows.append(len(batches[0].targets_N))
        if len(rows) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    assert capture(Workers(), cast("Any", SimpleNamespace(capture=record)), updates, cast("Any", [None]))
    assert (len(rows), updates.n_passes) == (2, 2)
    assert rows[1] < 0.7 * rows[0]
