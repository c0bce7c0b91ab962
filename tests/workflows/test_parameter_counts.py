import pytest

from model.config import BASE
from model.flops import count_parameters
from workflows.paper import VARIATIONS
from workflows.profiles.translation import WMT14
from workflows.tables.table3_rows import GridRow, rows


@pytest.mark.parametrize("row", rows(WMT14.grid), ids=lambda row: row.name)
def test_counts_differ_from_base_as_in_the_paper(row: GridRow) -> None:
    from_base = count_parameters(row.training.model) - count_parameters(BASE)
    millions = VARIATIONS[row.name].parameters_millions
    if millions is None:
        assert from_base == (1024 * 512 if row.name == "E" else 0)
        return
    printed = millions - 65
    assert abs(from_base / 1e6 - printed) <= (0.03 * abs(printed) if "d_model" in row.difference else 1.0)


def test_base_has_the_parameters_of_the_formula() -> None:
    """§3: projections without bias, feed-forward layers with biases, norms with gain and bias, one shared embedding."""
    attention = 4 * 512 * 8 * 64
    feed_forward = 2 * 512 * 2048 + 2048 + 512
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert 6 * (encoder_layer + decoder_layer) + 37_000 * 512 == count_parameters(BASE) == 63_045_632
