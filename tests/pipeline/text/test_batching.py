"""pipeline.text.batching: the plan of an epoch, as a pure function."""

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.corpora.lengths import LENGTHS, draw_lengths
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text.batching import EpochPlan, cut, equal_bounds, plan_epoch

Lengths = NDArray[np.int32]


def corpus(n: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Returns sentence-like lengths: log-normal, correlated between sides."""
    random = np.random.default_rng(seed)
    target = np.clip(random.lognormal(2.5, 0.5, n), 2, 100).astype(np.int32)
    return np.clip(target + random.integers(-3, 4, n), 2, 100).astype(np.int32), target


def plan_of(lengths: tuple[Lengths, Lengths], epoch: int = 0, **chosen: Any) -> EpochPlan:
    return plan_epoch(*lengths, TrainingSettings(**{"budget_tokens": 2000, **chosen}), epoch)


@settings(max_examples=50)
@given(
    n=st.integers(2000, 4000),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
    budget=st.integers(400, 2500),
    mixes=st.booleans(),
)
def test_each_pair_once_and_updates_within_the_budget(n: int, seed: int, epoch: int, budget: int, mixes: bool) -> None:
    lengths = source, target = corpus(n, seed)
    plan = plan_of(lengths, epoch, seed=seed, budget_tokens=budget, mixes_lengths=mixes)
    updates = [plan[update] for update in range(len(plan))]
    units = list(chain.from_iterable(updates))
    assert sorted(np.concatenate(units).tolist()) == list(range(n))
    assert {len(update) for update in updates} == {TrainingSettings(budget_tokens=budget).units}
    real = [[sum(side[rows].sum() for rows in update) for side in lengths] for update in updates]
    assert plan.real_tokens[plan.dealt].sum(axis=1).tolist() == real
    assert np.mean(np.max(real, axis=1)) == pytest.approx(budget, rel=0.08)
    padded = sum(len(rows) * int(source[rows].max() + target[rows].max()) for rows in units)
    assert plan.padding_fraction == pytest.approx(1 - (source.sum() + target.sum()) / padded)


@pytest.mark.parametrize("mixes", [False, True])
def test_updates_of_the_paper_s_size_are_of_one_length_or_mix_all(mixes: bool) -> None:
    """With WMT14's lengths, the fuller side has 25,000 tokens on average, whichever pairs an update has."""
    source, target = draw_lengths(LENGTHS["wmt14"], 200_000, np.random.default_rng(1))
    plan = plan_of((source, target), budget_tokens=25_000, mixes_lengths=mixes)
    fuller_tokens = plan.real_tokens[plan.dealt].sum(axis=1).max(axis=1)
    assert fuller_tokens.mean() == pytest.approx(25_000, rel=0.01)
    assert np.abs(fuller_tokens / 25_000 - 1).max() < 0.1
    lengths = [target[np.concatenate(plan[update])] for update in range(len(plan))]
    means, spreads = np.transpose([(each.mean(), each.std()) for each in lengths])
    assert np.std(means) < 0.05 * target.std() if mixes else spreads.mean() < 0.25 * target.std()
    assert abs(np.corrcoef(means, np.arange(len(plan)))[0, 1]) < 0.3  # in random order
    assert plan.padding_fraction < (0.0025 if mixes else 0.0075)
    for size in (1, 2, 4, 8):  # packed batches of a worker have as many rows a side as its fullest share of an epoch
        fullest = [plan.real_tokens[plan.dealt[:, rank::size]].sum(axis=1).max() for rank in range(size)]
        assert plan.real_tokens.sum() > 0.94 * 2 * sum(fullest) * len(plan)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=9, max_size=99), st.integers(1, 9))
def test_runs_have_equal_tokens_to_half_a_pair_at_either_end(lengths: list[tuple[int, int]], n_runs: int) -> None:
    source, target = np.array(lengths, np.int32).T
    bounds = equal_bounds(source, target, n_runs).tolist()
    assert [bounds[0], bounds[-1], len(bounds)] == [0, len(lengths), n_runs + 1]
    assert all(begin < end for begin, end in pairwise(bounds))
    tokens = (source + target).astype(int)
    if tokens.max() < tokens.sum() / n_runs:  # else runs of one long pair move others
        for begin, end in pairwise(bounds):
            assert abs(tokens[begin:end].sum() - tokens.sum() / n_runs) <= tokens.max()


@given(lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1), limit=st.integers(1, 60))
def test_cut_is_greedy(lengths: list[tuple[int, int]], limit: int) -> None:
    source, target = np.array(lengths, np.int32).T
    bounds = cut(source, target, limit).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    for begin, end in pairwise(bounds):
        assert max(source[begin:end].sum(), target[begin:end].sum()) <= limit or end == begin + 1
        if end < len(lengths):
            assert max(source[begin : end + 1].sum(), target[begin : end + 1].sum()) > limit


def test_pure_function_of_seed_and_epoch() -> None:
    lengths = corpus(3000)
    plan = plan_of(lengths)
    for other, same in ((plan_of(lengths), 1), (plan_of(lengths, seed=2), 0), (plan_of(lengths, epoch=1), 0)):
        assert len(other) == len(plan)
        assert (np.concatenate(plan[0]).tolist() == np.concatenate(other[0]).tolist()) == same


def test_an_update_too_large_for_the_text_is_refused() -> None:
    with pytest.raises(UserError, match=r"50 pairs of \d+ tokens .*do not fill updates of .* 2000; lower budget"):
        plan_of(corpus(50))
    assert len(plan_of(corpus(50), budget_tokens=max(int(side.sum()) for side in corpus(50)))) == 1
    long = np.full(500, 140, np.int32)
    assert len(plan_of((long, long), budget_tokens=300)) == 233
    with pytest.raises(UserError, match=r"500 pairs .* lower"):  # a unit is a pair or more
        plan_of((long, long), budget_tokens=100)
    with pytest.raises(UserError, match="empty"):
        plan_of((long[:0], long[:0]))
