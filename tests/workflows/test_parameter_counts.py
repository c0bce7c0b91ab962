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
