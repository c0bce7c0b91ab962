"""Recall at a distance by each layer type (§4)."""

from pathlib import Path

import pytest
import torch

from pipeline.complexity.recall import (
    N_PAYLOADS,
    QUERY,
    RECALLING,
    Recalling,
    RecallSettings,
    measure,
    network,
    reaches,
    sequences,
)
from pipeline.store.artifact import Context

SETTINGS = RecallSettings(width=16, n_heads=2, window=8, updates=150, batch=16, rates=(0.003, 0.01), seeds=1)


def test_each_sequence_asks_for_its_payload_at_the_distance() -> None:
    """Each sequence holds one payload and one query, at that distance, among distractors."""
    symbols_BL, payload_B, query_B = sequences(50, 20, torch.Generator().manual_seed(1))
    for symbols_L, payload, query in zip(symbols_BL.tolist(), payload_B.tolist(), query_B.tolist(), strict=True):
        assert (symbols_L[query], symbols_L[query - 20]) == (QUERY, payload)
        assert [symbol for symbol in symbols_L if symbol < N_PAYLOADS] == [payload]
        assert symbols_L.count(QUERY) == 1


@pytest.mark.parametrize("layer_type", RECALLING)
@pytest.mark.parametrize("distance", [5, 20])
def test_a_network_sees_just_as_far_as_it_has_to(layer_type: Recalling, distance: int) -> None:
    """The logits at the query depend on the payload. With one layer of limited reach fewer they would not."""
    symbols_BL, _, query_B = sequences(1, distance, torch.Generator().manual_seed(1))
    seen = reaches(layer_type, distance, SETTINGS)
    assert sum(seen) >= distance > sum(seen[:-1])
    model = network(layer_type, distance, SETTINGS, seed=1)
    other_BL, query = symbols_BL.clone(), int(query_B)
    other_BL[0, query - distance] = (other_BL[0, query - distance] + 1) % N_PAYLOADS
    assert not torch.equal(model(symbols_BL)[0, query], model(other_BL)[0, query])
    if len(seen) > 1:
        shorter = torch.nn.Sequential(model[0], *list(model)[1 : len(seen)], *list(model)[len(seen) + 1 :])
        assert torch.equal(shorter(symbols_BL)[0, query], shorter(other_BL)[0, query])


def test_self_attention_recalls(tmp_path: Path) -> None:
    """It learns to recall far better than chance at the rate chosen with the first seed. Two runs are bit-identical."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    record = measure(Context(tmp_path / "first"), "self-attention", 5, SETTINGS).load()
    assert record.rate == min(record.chosen_by, key=record.chosen_by.__getitem__)
    assert len(record.nll) == 1
    assert record.nll[0] < 0.7
    assert record.path_steps == 1
    assert measure(Context(tmp_path / "second"), "self-attention", 5, SETTINGS).load() == record
