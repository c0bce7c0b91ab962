"""pipeline.evaluation.perplexity: it is exp of the plain NLL of the dev split."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from model.batch import shift_right
from model.config import PAD_ID
from pipeline.errors import UserError
from pipeline.evaluation.perplexity import measure
from pipeline.evaluation.translation import load_model
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset
from pipeline.text.encoding import EncodedSplit
from pipeline.training.validation import split_sums
from tests.support.batches import hidden_of
from tests.support.tiny_training import TINY, metrics


@pytest.fixture
def checkpoint(one_worker: Path) -> Checkpoint:
    """The last checkpoint of a training."""
    return Checkpoint(one_worker / "checkpoints" / f"{TINY.updates:08d}")


def test_perplexity_is_that_of_torch_sentence_by_sentence(
    checkpoint: Checkpoint, dataset: EncodedDataset, one_worker: Path, tmp_path: Path
) -> None:
    """It equals F.cross_entropy over unpadded sentences, and what training itself logged at its end."""
    figures = measure(Context(tmp_path), checkpoint, dataset).load()
    model, split = load_model(checkpoint.folder), EncodedSplit.open(dataset, "dev")
    nll = 0.0
    with torch.no_grad():
        for row in range(len(split)):
            source_BS, target_BT = split.batch(np.array([row]))
            logits_TV = model.logits(hidden_of(model, source_BS, shift_right(target_BT)))[0]
            nll += float(F.cross_entropy(logits_TV, target_BT[0], ignore_index=PAD_ID, reduction="sum"))
    assert figures.tokens == split.target_lengths.sum()
    assert figures.dev_nll == pytest.approx(nll / figures.tokens, rel=1e-5)
    assert figures.dev_perplexity == pytest.approx(math.exp(figures.dev_nll))
    assert figures.dev_nll == pytest.approx(metrics(one_worker)[-1]["dev_nll"], rel=1e-5)


def test_sums_are_the_workers_together(checkpoint: Checkpoint, dataset: EncodedDataset) -> None:
    """With three workers, every batch is measured once; smoothing changes the loss and not the NLL."""
    model, split = load_model(checkpoint.folder).train(), EncodedSplit.open(dataset, "dev")
    whole = split_sums(model, split, smoothing=0.1)
    parts = torch.stack([split_sums(model, split, 0.1, rank, 3) for rank in range(3)])
    torch.testing.assert_close(parts.sum(0), whole)
    plain = split_sums(model, split, smoothing=0.0)
    assert plain[0] == pytest.approx(float(whole[1]))
    assert whole[0] != pytest.approx(float(whole[1]), rel=1e-3)
    assert model.training


def test_other_vocabulary_is_refused(checkpoint: Checkpoint, dataset: EncodedDataset, tmp_path: Path) -> None:
    """The perplexity of a checkpoint with another vocabulary would be meaningless."""
    other = EncodedDataset(shutil.copytree(dataset.folder, tmp_path / "other"))
    other.write_json("dataset.json", {**other.read_json("dataset.json"), "vocabulary_size": 900})
    with pytest.raises(UserError, match=r"vocabulary_size = 800, .* 900 pieces"):
        measure(Context(tmp_path), checkpoint, other)
