"""pipeline.training.preflight: what does not fit into memory is divided before a run begins."""

from collections.abc import Sequence
from typing import Any

import torch

from model.batch import Batch
from pipeline.artifacts import EncodedDataset
from pipeline.text.encoding import EncodedSplit
from pipeline.training.preflight import capture
from pipeline.training.updates import Updates
from pipeline.training.workers import Workers
from tests.support.tiny_training import TINY, with_fields


def test_a_graph_that_lacks_memory_is_recorded_of_smaller_passes(dataset: EncodedDataset) -> None:
    settings, rows = with_fields(pass_tokens=TINY.budget_tokens), list[int]()
    updates = Updates(EncodedSplit.open(dataset, "train"), settings, Workers(), torch.float32, "packed")

    class Card:
        def capture(self, batches: Sequence[Batch]) -> None:
            rows.append(len(batches[0].targets_N))
            if len(rows) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")

    device: Any = None
    step: Any = Card()
    assert capture(Workers(), step, updates, [device])
    assert (len(rows), updates.n_passes) == (2, 2)
    assert rows[1] < 0.7 * rows[0]
