"""pipeline.text.batching: the plan of an epoch, as a pure function."""

import gzip
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text import batching
from pipeline.text.batching import BAND_RUNS, FEW_PAIRS, EpochPlan, by_length, cut, micro_batch_bounds, plan_epoch

Lengths = NDArray[np.int32]


def corpus(n: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Returns sentence-like lengths: log-normal, correlated between sides."""
    random = np.random.default_rng(seed)
    target = np.clip(random.lognormal(2.5, 0.5, n), 2, 100).astype(np.int32)
    return np.clip(target + random.integers(-3, 4, n), 2, 100).astype(np.int32), target


def plan_of(lengths: tuple[Lengths, Lengths], *, seed: int = 1, epoch: int = 0, micro_batches: int = 8) -> EpochPlan:
    """A plan with a budget of 250 tokens per micro-batch."""
    return plan_epoch(
        *lengths, TrainingSettings(budget_tokens=250 * micro_batches, micro_batches=micro_batches, seed=seed), epoch
    )


@settings(max_examples=50)
@given(n=st.integers(2000, 4000), seed=st.integers(0, 99), epoch=st.integers(0, 9), micro_batches=st.integers(1, 8))
def test_each_pair_once_within_the_budget(n: int, seed: int, epoch: int, micro_batches: int) -> None:
    lengths = source, target = corpus(n, seed)
    plan = plan_of(lengths, seed=seed, epoch=epoch, micro_batches=micro_batches)
    updates = [plan[update] for update in range(len(plan))]
    micro = list(chain.from_iterable(updates))
    assert sorted(np.concatenate(micro).tolist()) == list(range(n))
    assert {len(update) for update in updates[:-1]} <= {micro_batches}
    assert 1 <= len(updates[-1]) <= micro_batches
    for number, update in enumerate(updates):
        assert plan.source_tokens[number] == sum(source[rows].sum() for rows in update)
        assert plan.target_tokens[number] == sum(target[rows].sum() for rows in update)
        padded = [len(rows) * int(source[rows].max() + target[rows].max()) for rows in update]
        assert plan.computed_tokens[number] == sum(padded)
        assert all(max(source[rows].sum(), target[rows].sum()) <= 250 for rows in update)
    assert plan.padding_fraction == pytest.approx(1 - (source.sum() + target.sum()) / plan.computed_tokens.sum())


@given(lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1), limit=st.integers(1, 60))
def test_cut_is_greedy(lengths: list[tuple[int, int]], limit: int) -> None:
    source, target = np.array(lengths, np.int32).T
    bounds = cut(source, target, limit).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    for begin, end in pairwise(bounds):
        longer = max(source[begin:end].sum(), target[begin:end].sum())
        assert longer <= limit or end == begin + 1
        if end < len(lengths):
            assert max(source[begin : end + 1].sum(), target[begin : end + 1].sum()) > limit


@settings(max_examples=50)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=60),
    limit=st.integers(1, 30),
    block=st.integers(1, 20),
)
def test_blocks_change_nothing(lengths: list[tuple[int, int]], limit: int, block: int) -> None:
    """At any block size, rows are sorted by (band, source up or down, target) and cut alike."""
    source, target = np.array(lengths, np.int32).T
    rows = np.random.default_rng(len(lengths)).permutation(len(lengths)).astype(np.int32)
    band_of, band, held_tokens = {}, 0, 0
    for length in range(int(target.max()) + 1):
        band_of[length] = band
        held_tokens += sum(max(pair) for pair in lengths if pair[1] == length)
        if held_tokens >= BAND_RUNS * limit:
            band, held_tokens = band + 1, 0

    def key(row: int) -> tuple[int, int, int]:
        band = band_of[lengths[row][1]]
        return band, lengths[row][0] * (1 if band % 2 else -1), lengths[row][1]

    with pytest.MonkeyPatch.context() as patch:
        whole = cut(source, target, limit)
        patch.setattr(batching, "BLOCK_PAIRS", block)
        assert by_length(source, target, rows, limit).tolist() == sorted(rows.tolist(), key=key)
        assert cut(source, target, limit).tolist() == whole.tolist()


def test_micro_batches_with_the_most_pairs_are_split() -> None:
    """Short sentences fill more micro-batches, none has more pairs than the 95th percentile, and the others stay."""
    lengths = np.repeat([2, 20, 40], [4_000, 20_000, 20_000])
    by_tokens, bounds = cut(lengths, lengths, 4_000), micro_batch_bounds(lengths, lengths, 4_000)
    assert np.diff(by_tokens).max() == 2_000
    assert np.diff(bounds).max() == FEW_PAIRS
    assert bounds[bounds >= 4_000].tolist() == by_tokens[by_tokens >= 4_000].tolist()
    few = np.repeat([2, 40], [400, 20_000])  # up to 200 pairs stay, however few the others have
    assert micro_batch_bounds(few, few, 400).tolist() == cut(few, few, 400).tolist()


def test_pure_function_of_seed_and_epoch() -> None:
    lengths = corpus(3000)
    plan = plan_of(lengths)
    for other, same in ((plan_of(lengths), 1), (plan_of(lengths, seed=2), 0), (plan_of(lengths, epoch=1), 0)):
        assert len(other) == len(plan)
        assert (np.concatenate(plan[0]).tolist() == np.concatenate(other[0]).tolist()) == same


def test_overlong_pair_is_its_own_micro_batch_and_tried_first() -> None:
    source, target = corpus(3000)
    source[17], target[23] = 500, 600
    plan = plan_of((source, target))
    alone = [rows.tolist() for update in range(len(plan)) for rows in plan[update] if len(rows) == 1]
    assert [17] in alone
    assert [23] in alone
    assert sorted(rows.tolist() for rows in plan.largest) == [[17], [23]]


def test_budget_missed_by_a_tenth_is_refused() -> None:
    with pytest.raises(UserError, match=r"budget_tokens = 2000: 50 pairs are too few .*; lower budget_tokens"):
        plan_of(corpus(50))
    lowered = TrainingSettings(budget_tokens=int(max(side.sum() for side in corpus(50))), micro_batches=1)
    assert len(plan_epoch(*corpus(50), lowered, epoch=0)) == 1
    badly = np.full(500, 140, np.int32)
    with pytest.raises(
        UserError, match=r"would hold 1120 tokens.*too long for micro-batches of 250 .*raise budget_tokens"
    ):
        plan_of((badly, badly))
    for raised in (TrainingSettings(budget_tokens=8_000), TrainingSettings(budget_tokens=2_000, micro_batches=1)):
        plan_epoch(badly, badly, raised, epoch=0)
    with pytest.raises(UserError, match="empty"):
        plan_of((badly[:0], badly[:0]))


def test_little_padding_at_the_papers_batch_size(data: Path) -> None:
    words = []
    for language in ("en", "de"):
        with gzip.open(data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8", newline="\n") as file:
            words.append(np.array([len(line.split()) + 1 for line in file], np.int32))
    for micro_batches in (1, 8):
        budget_tokens = 4096 if micro_batches == 1 else 25_000
        plan = plan_epoch(*words, TrainingSettings(budget_tokens=budget_tokens, micro_batches=micro_batches), epoch=0)
        assert plan.padding_fraction < 0.05
