"""Drawn lengths are those of real text, and written pairs are ids of a vocabulary."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.corpora.synthetic.lengths import LENGTHS, draw_lengths, write_dataset
from pipeline.text.encoding import EncodedSplit
from tests.support.tiny_text import every_character


def _quantiles(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.stack([np.percentile(side, [1, 5, 10, 25, 50, 75, 90, 95, 99]) for side in (source, target)])


def test_lengths_are_those_of_multi30k(data: Path, tmp_path: Path) -> None:
    """Drawn lengths match the quantiles, means and ratios of the real text encoded with 8 000 pieces."""
    from pipeline.corpora import multi30k
    from pipeline.settings import CleaningSettings, EncodingSettings
    from pipeline.store.artifact import Context
    from pipeline.text import cleaning, encoding, vocabulary

    def context(name: str) -> Context:
        (tmp_path / name).mkdir()
        return Context(tmp_path / name)

    corpus = multi30k.read(context("text"), multi30k.Multi30kSettings(data=data / "multi30k"))
    corpus = cleaning.clean(context("clean"), corpus, CleaningSettings())
    pieces = vocabulary.learn(context("vocabulary"), corpus, every_character(8000))
    real = EncodedSplit.open(encoding.encode(context("encoded"), corpus, pieces, EncodingSettings()), "train")
    drawn = draw_lengths(LENGTHS["multi30k"], 29_000, np.random.default_rng(1))
    assert np.abs(_quantiles(*drawn) - _quantiles(real.source_lengths, real.target_lengths)).max() <= 1
    assert drawn.mean(1) == pytest.approx([real.source_lengths.mean(), real.target_lengths.mean()], rel=0.015)
    spread = [np.percentile(t / s, [5, 50, 95]) for s, t in (drawn, (real.source_lengths, real.target_lengths))]
    assert spread[0] == pytest.approx(spread[1], abs=0.03)


def test_written_pairs(tmp_path: Path) -> None:
    """Ids lie in the vocabulary, END_ID is the only special one, low ids are frequent, a seed gives the same ids."""
    lengths = replace(LENGTHS["wmt14"], pairs=300)
    split = EncodedSplit.open(write_dataset(tmp_path / "a", lengths, 300), "train")
    again = EncodedSplit.open(write_dataset(tmp_path / "b", lengths, 300), "train")
    assert len(split) == 300
    source_BS, target_BT = split.batch(np.arange(300))
    assert torch.equal(target_BT, again.batch(np.arange(300))[1])
    words = torch.cat([side[side > 3] for side in (source_BS, target_BT)])
    assert (len(words) + 600) == split.source_lengths.sum() + split.target_lengths.sum()
    assert int(words.max()) < 300
    assert float((words == 4).float().mean()) == pytest.approx(np.log(2) / np.log(296), abs=0.01)
