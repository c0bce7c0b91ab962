"""pipeline.evaluation.costs: the paper's cost formula and its sustained rates."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.evaluation.costs import count, sustained_flop_s
from pipeline.store.artifact import Context
from pipeline.store.artifacts import TrainingRun
from tests.support.tiny_figures import TRAINING


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
    """A device of footnote 5, by its whole name, has the printed rate; any other has the rate that its run measured."""
    assert sustained_flop_s(name, 5e13) == wanted


def test_cost_of_the_paper_s_base_model(tmp_path: Path) -> None:
    """12 hours on 8 P100 give the 3.3e18 that Table 2 prints; the file holds what went into it."""
    run = TrainingRun(tmp_path)
    run.write(TRAINING.model_copy(update={"train_s": 43_200.0, "devices": 8, "device_name": "Tesla P100-SXM2-16GB"}))
    cost = count(Context(tmp_path), run)
    assert f"{cost.load().paper_way_flop:.1e}" == "3.3e+18"
    assert cost.read_json("cost.json") == {
        "paper_way_flop": 43_200.0 * 8 * 9.5e12,
        "counted_flop": TRAINING.counted_flop,
        "train_s": 43_200.0,
        "devices": 8,
        "sustained_flop_s": 9.5e12,
        "sustained_source": "paper",
        "device_name": "Tesla P100-SXM2-16GB",
    }


def test_missing_figure_is_named(tmp_path: Path) -> None:
    """A run.json that lacks a figure gives one line that names it."""
    run = TrainingRun(tmp_path)
    run.write_json("run.json", TRAINING.model_dump(mode="json", exclude={"devices"}))
    with pytest.raises(UserError, match=r"run.json has no 'devices'"):
        count(Context(tmp_path), run)
