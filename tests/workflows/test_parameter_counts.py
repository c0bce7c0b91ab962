"""Table 3's rows have the paper's parameter counts, as differences from base (docs/table3.md)."""

from dataclasses import replace

import pytest

from model.config import BASE
from model.flops import count_parameters
from workflows.paper import TABLE_3, Variation

BY_NAME = {row.name: row for row in TABLE_3}


def test_a_row_gives_the_model_and_the_label_smoothing_of_its_training() -> None:
    """D3 and D4 change label smoothing but not the model; every other row the reverse."""
    assert {row.name: row.label_smoothing for row in TABLE_3 if row.label_smoothing != 0.1} == {"D3": 0.0, "D4": 0.2}
    same = [row.name for row in TABLE_3 if row.model(8000) == replace(BASE, vocabulary_size=8000)]
    assert same == ["base", "D3", "D4"]
    assert BY_NAME["E"].model(8000).positions == "learned"


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: row.name)
def test_counts_differ_from_base_as_in_the_paper(row: Variation) -> None:
    """They agree within 1 million, since printed counts are rounded, or within 3% where the vocabulary matters."""
    from_base = count_parameters(row.model(37_000)) - count_parameters(BASE)
    if row.parameters_millions is None:
        assert from_base == (1024 * 512 if row.name == "E" else 0)
        return
    printed = row.parameters_millions - 65
    assert abs(from_base / 1e6 - printed) <= (0.03 * abs(printed) if "d_model" in row.difference else 1.0)


def test_base_has_the_parameters_of_the_formula() -> None:
    """§3: projections without bias, feed-forward layers with biases, norms with gain and bias, one shared embedding."""
    attention = 4 * 512 * 8 * 64
    feed_forward = 2 * 512 * 2048 + 2048 + 512
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert 6 * (encoder_layer + decoder_layer) + 37_000 * 512 == count_parameters(BASE) == 63_045_632
