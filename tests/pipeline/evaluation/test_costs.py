"""pipeline.evaluation.costs: the paper's cost formula and its sustained rates."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.artifacts import TrainingRun
from pipeline.context import Context
from pipeline.evaluation.costs import count, sustained_flop_s
from pipeline.records import Segment, SegmentDevices
from tests.support.tiny_records import TRAINING, trained_on


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Tesla K80", (2.8e12, "paper")),
        *[(name, (3.7e12, "paper")) for name in ("Tesla K40m", "Tesla K40st", "K40")],
        *[(name, (6.0e12, "paper")) for name in ("Tesla M40", "Tesla M40 24GB", "NVIDIA Tesla M40")],
        *[(name, (9.5e12, "paper")) for name in ("Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB", "P100")],
        *[(name, (5e13, "measured")) for name in ("NVIDIA H100 80GB HBM3", "Quadro P1000", "Tesla M40m", "GRID M40")],
    ],
)
def test_rate_is_the_paper_s_or_measured(name: str, wanted: tuple[float, str]) -> None:
    """A GPU of footnote 5, under any of its driver's names, has the paper's rate. Any other GPU, and a virtual
    machine's share of one (GRID), has its run's measured rate."""
    assert sustained_flop_s(name, 5e13) == wanted
    assert sustained_flop_s(name, None) == (wanted if wanted[1] == "paper" else None)


def test_cost_of_the_paper_s_base_model(tmp_path: Path) -> None:
    """12 hours on 8 P100 give Table 2's 3.3e18."""
    run = TrainingRun(tmp_path)
    run.write(trained_on("Tesla P100-SXM2-16GB", 8, 43_200.0))
    cost = count(Context(tmp_path), run).load()
    assert cost.paper_way_flop == pytest.approx(43_200.0 * 8 * 9.5e12) == pytest.approx(3.3e18, rel=0.01)
    assert cost.counted_flop == TRAINING.counted_flop


def segment(train_s: float, *devices: SegmentDevices, dtype: str = "bfloat16") -> Segment:
    return Segment(devices, threads=1, dtype=dtype, torch_version="2.13.0", compiled=True, train_s=train_s)


@pytest.mark.parametrize(
    ("segments", "flop"),
    [
        # 1,000 s by eight workers and 100 s by one of them
        ([(1000.0, ("H100", 8, 6e14)), (100.0, ("H100", 1, 6.2e14))], 8000 * 6e14 + 100 * 6.2e14),
        # the paper's devices have the paper's rate, even if measured, others the measured rate
        ([(10.0, ("Tesla P100-SXM2", 2, 1e10), ("H100", 1, 6e14))], 20 * 9.5e12 + 10 * 6e14),
        # one device without a rate leaves the whole run without a cost by the paper's method
        ([(10.0, ("H100", 1, 6e14)), (5.0, ("Intel Xeon", 2, None))], None),
    ],
)
def test_cost_is_added_segment_by_segment(tmp_path: Path, segments: list[tuple[Any, ...]], flop: float | None) -> None:
    run, described = TrainingRun(tmp_path), []
    for train_s, *devices in segments:
        described.append(segment(train_s, *(SegmentDevices(*device) for device in devices)))
    run.write(TRAINING.model_copy(update={"segments": tuple(described)}))
    assert count(Context(tmp_path), run).load().paper_way_flop == (flop and pytest.approx(flop))
