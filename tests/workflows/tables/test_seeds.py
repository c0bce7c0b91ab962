import csv
from collections.abc import Callable
from dataclasses import replace

import pytest

from workflows.tables.measured import Measured
from workflows.tables.seeds import seeds_csv


@pytest.mark.parametrize(("recurrent", "compared"), [(1.02, ["base", "recurrent"]), (1.021, [])])
def test_models_compare_at_equal_flop(cell: Callable[..., Measured], recurrent: float, compared: list[str]) -> None:
    """Within 2%, of base and its competitors in each language pair: whatever big and other pairs have spent."""
    spent = {("en-de", "base"): 1.0, ("en-de", "recurrent"): recurrent, ("en-de", "big"): 9.0, ("en-fr", "base"): 5.0}
    models = []
    for (pair, name), flop in spent.items():
        model = cell(pair, name, dev_perplexity=2 + flop)
        models.append(replace(model, costs=model.costs.model_copy(update={"counted_flop": 1e12 * flop})))
    rows = [row for row in csv.DictReader(seeds_csv(models).splitlines()) if row.get("equal_flop_dev_nll")]
    assert [row["model"] for row in rows] == compared
    assert all(row["equal_flop_dev_nll"] == row["final_dev_nll"] for row in rows)
