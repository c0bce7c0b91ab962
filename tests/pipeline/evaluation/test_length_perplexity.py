"""pipeline.evaluation.length_perplexity: each range is measured as if its pairs were all there are."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import PAD_ID
from pipeline.evaluation import length_perplexity, perplexity
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset
from pipeline.text.encoding import EncodedSplit, Ragged, write_shard
from tests.support.tiny_training import TINY


def test_ranges_are_measured_as_datasets_of_their_pairs(
    one_worker: Path, dataset: EncodedDataset, tmp_path: Path
) -> None:
    """A range equals perplexity.py on its pairs only, all ranges together equal it on the split."""
    checkpoint = Checkpoint(one_worker / "checkpoints" / f"{TINY.updates:08d}")
    split = EncodedSplit.open(dataset, "dev")
    longer_side = np.maximum(split.source_lengths, split.target_lengths)
    longest_trained = int(np.median(longer_side) * 0.7)
    measured = length_perplexity.measure(Context(tmp_path), checkpoint, dataset, longest_trained).load()
    ranges = measured.ranges
    assert ranges[0].up_to_tokens < longest_trained < 2 * longest_trained < ranges[-1].up_to_tokens
    assert [part.above_tokens for part in ranges[1:]] == [part.up_to_tokens for part in ranges[:-1]]
    assert ranges[-1].up_to_tokens == longer_side.max()

    whole = perplexity.measure(Context(tmp_path), checkpoint, dataset).load()
    assert measured.longer
    beyond = [part for part in ranges if part.above_tokens >= longest_trained]
    for parts, all_together in ((ranges, whole), (beyond, measured.longer)):
        assert sum(part.tokens for part in parts) == all_together.tokens
        nll = sum(part.dev_nll * part.tokens for part in parts)
        assert nll / all_together.tokens == pytest.approx(all_together.dev_nll, rel=1e-6)

    for number, part in enumerate(ranges):
        rows = np.flatnonzero((longer_side > part.above_tokens) & (longer_side <= part.up_to_tokens))
        only = _dataset_of(dataset, split, rows, tmp_path / f"range{number}")
        alone = perplexity.measure(Context(tmp_path), checkpoint, only).load()
        assert (part.pairs, part.tokens) == (len(rows), alone.tokens)
        assert part.dev_nll == pytest.approx(alone.dev_nll, rel=1e-6)
        assert part.dev_perplexity == pytest.approx(math.exp(part.dev_nll))


def _dataset_of(dataset: EncodedDataset, split: EncodedSplit, rows: NDArray[np.int64], folder: Path) -> EncodedDataset:
    """Returns a copy whose dev split has these rows only."""
    only = EncodedDataset(shutil.copytree(dataset.folder, folder))
    sides = []
    for ids_BL, lengths_B in zip(
        split.batch(rows), (split.source_lengths[rows], split.target_lengths[rows]), strict=True
    ):
        sides.append(Ragged(ids_BL[ids_BL != PAD_ID].numpy(), lengths_B))
    figures = write_shard(folder / "dev" / "00000.arrow", *sides, None)
    del figures["left_out"]
    described = only.read_json("dataset.json")
    only.write_json("dataset.json", {**described, "splits": {**described["splits"], "dev": [figures]}})
    return only
