"""The paper's cost formula and its sustained rates."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.evaluation.costs import count, sustained_flop_s
from pipeline.store.artifact import Context
from pipeline.store.artifacts import TrainingRun

RUN = {
    "train_s": 43_200.0,
    "devices": 8,
    "device_name": "Tesla P100-SXM2-16GB",
    "matmul_flop_s": 1.0,
    "counted_flop": 7,
}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Tesla K80", (2.8e12, "paper")),
        ("Tesla P100-PCIE-16GB", (9.5e12, "paper")),
        ("NVIDIA H100 80GB HBM3", (5e13, "measured")),
        ("Quadro P1000", (5e13, "measured")),
    ],
)
def test_rate_is_the_paper_s_or_measured(name: str, wanted: tuple[float, str]) -> None:
    """A device of footnote 5 has its rate, by whole name; any other the one that its run measured."""
    assert sustained_flop_s(name, 5e13) == wanted


def test_cost_of_the_paper_s_base_model(tmp_path: Path) -> None:
    """12 hours on 8 P100 give the 3.3e18 that Table 2 prints."""
    TrainingRun(tmp_path).write_json("run.json", RUN)
    cost = count(Context(tmp_path), TrainingRun(tmp_path)).read_json("cost.json")
    assert f"{cost['paper_way_flop']:.1e}" == "3.3e+18"
    assert cost["counted_flop"] == 7
    assert cost["sustained_source"] == "paper"


def test_missing_figure_is_named(tmp_path: Path) -> None:
    """An old run.json gives one line, not a KeyError."""
    TrainingRun(tmp_path).write_json("run.json", {name: value for name, value in RUN.items() if name != "devices"})
    with pytest.raises(UserError, match=r"run.json has no 'devices'"):
        count(Context(tmp_path), TrainingRun(tmp_path))
