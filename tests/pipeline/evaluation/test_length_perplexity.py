"""pipeline.evaluation.length_perplexity: each range is measured as if its pairs were all there are."""

import math
from pathlib import Path

import numpy as np
import pytest

from pipeline.evaluation import length_perplexity, perplexity
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset, EvaluationSet
from pipeline.text.encoding import EncodedSplit
from tests.support.parallel_text import set_of
from tests.support.read_text import pairs_of_set


def test_ranges_are_measured_as_sets_of_their_pairs(
    trained: Checkpoint, dataset: EncodedDataset, dev_set: EvaluationSet, tmp_path: Path
) -> None:
    """A range equals perplexity.py on its pairs only, all ranges together equal it on the whole set."""
    split = EncodedSplit.open(dataset, "dev")
    longer_side = np.maximum(split.source_lengths, split.target_lengths)
    longest_trained = int(np.median(longer_side) * 0.7)
    measured = length_perplexity.measure(Context(tmp_path), trained, dev_set, longest_trained).load()
    ranges = measured.ranges
    assert ranges[0].up_to_tokens < longest_trained < 2 * longest_trained < ranges[-1].up_to_tokens
    assert [part.above_tokens for part in ranges[1:]] == [part.up_to_tokens for part in ranges[:-1]]
    assert ranges[-1].up_to_tokens == longer_side.max()

    whole = perplexity.measure(Context(tmp_path), trained, dev_set).load()
    assert measured.longer
    beyond = [part for part in ranges if part.above_tokens >= longest_trained]
    for parts, all_together in ((ranges, whole), (beyond, measured.longer)):
        assert sum(part.tokens for part in parts) == all_together.tokens
        nll = sum(part.dev_nll * part.tokens for part in parts)
        assert nll / all_together.tokens == pytest.approx(all_together.dev_nll, rel=1e-6)

    pairs = pairs_of_set(dev_set)
    for number, part in enumerate(ranges):
        rows = np.flatnonzero((longer_side > part.above_tokens) & (longer_side <= part.up_to_tokens))
        only = set_of(tmp_path / f"range{number}", [pairs[row] for row in rows])
        alone = perplexity.measure(Context(tmp_path), trained, only).load()
        assert (part.pairs, part.tokens) == (len(rows), alone.tokens)
        assert part.dev_nll == pytest.approx(alone.dev_nll, rel=1e-6)
        assert part.dev_perplexity == pytest.approx(math.exp(part.dev_nll))
