"""pipeline.evaluation.perplexity: exp of the plain NLL of the dev set, or of its pairs in a range of lengths."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from model.batch import shift_right
from model.config import PAD_ID
from pipeline.artifacts import Checkpoint, EncodedDataset, EvaluationSet
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.evaluation.perplexity import measure
from pipeline.evaluation.translation import load_model
from pipeline.settings import LONGEST_TOKENS
from pipeline.text.encoding import EncodedSplit
from tests.support.batches import hidden_of
from tests.support.parallel_text import set_of
from tests.support.tiny_training import metrics


def test_perplexity_is_that_of_torch_sentence_by_sentence(
    trained: Checkpoint, dataset: EncodedDataset, dev_set: EvaluationSet, one_worker: Path, tmp_path: Path
) -> None:
    """NLL and accuracy equal torch's over unpadded sentences, and the NLL equals the run's own log."""
    record = measure(Context(tmp_path), trained, dev_set).load()
    model, split = load_model(trained.folder), EncodedSplit.open(dataset, "dev")
    nll, n_correct = 0.0, 0
    with torch.no_grad():
        for row in range(len(split)):
            source_BS, target_BT = split.batch(np.array([row]))
            logits_TV = model.logits(hidden_of(model, source_BS, shift_right(target_BT)))[0]
            nll += float(F.cross_entropy(logits_TV, target_BT[0], ignore_index=PAD_ID, reduction="sum"))
            n_correct += int((logits_TV.argmax(-1) == target_BT[0]).sum())
    assert [path.name for path in tmp_path.iterdir()] == ["perplexity.json"]
    assert record.tokens == split.target_lengths.sum()
    assert record.dev_nll == pytest.approx(nll / record.tokens, rel=1e-5)
    assert 0.005 < n_correct / record.tokens < 0.98
    assert record.dev_accuracy == n_correct / record.tokens
    assert record.dev_perplexity == pytest.approx(math.exp(record.dev_nll))
    assert record.dev_nll == pytest.approx(metrics(one_worker)[-1]["dev_nll"], rel=1e-5)


def test_a_dev_set_of_overlong_pairs_is_refused(trained: Checkpoint, tmp_path: Path) -> None:
    text = set_of(tmp_path / "dev", [("dog " * LONGEST_TOKENS, "Hund")])
    with pytest.raises(UserError, match=rf"dev\.en has no pair of at most {LONGEST_TOKENS} tokens; add shorter text"):
        measure(Context(tmp_path), trained, text)
