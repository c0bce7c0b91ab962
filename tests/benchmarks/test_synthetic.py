from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.synthetic import write_dataset
from pipeline.corpora.lengths import LENGTHS
from pipeline.text.encoding import EncodedSplit


def test_written_pairs(tmp_path: Path) -> None:
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
