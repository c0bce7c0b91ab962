"""Computes a training's cost in floating point operations: the paper's way (§6.1, footnote 5), and counted.

The paper's way is an estimate from outside: training time × devices × sustained single-precision rate. It also counts
the time in which a device does not multiply, so it comes out higher than the operations counted from the model.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.figures import Figures

PAPER_SUSTAINED_FLOP_S = MappingProxyType({"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12})
"""The sustained single-precision operations a second of one GPU (footnote 5)."""
RateSource = Literal["paper", "measured"]


class CostFigures(Figures):
    """`cost.json`: both costs, and what went into them."""

    paper_way_flop: float
    counted_flop: float
    """Operations of the model's matrix products."""
    train_s: float
    devices: int
    sustained_flop_s: float
    """The rate of one device."""
    sustained_source: RateSource
    device_name: str


@dataclass(frozen=True)
class Cost(JsonArtifact[CostFigures]):
    """`cost.json`: both costs of a training, in FLOP."""

    figures_file = "cost.json"


def sustained_flop_s(device_name: str, measured_flop_s: float) -> tuple[float, RateSource]:
    """Returns the rate of one device and its source: "paper" (footnote 5), or "measured" for any other device."""
    for name, flop_s in PAPER_SUSTAINED_FLOP_S.items():
        if name in device_name.upper().replace("-", " ").split():
            return flop_s, "paper"
    return measured_flop_s, "measured"


def count(context: Context, run: TrainingRun) -> Cost:
    """Writes the costs of a finished training. Raises UserError where `run.json` lacks a figure."""
    figures = run.load()
    rate_flop_s, source = sustained_flop_s(figures.device_name, figures.matmul_flop_s)
    cost = Cost(context.folder)
    cost.write(
        CostFigures(
            paper_way_flop=figures.train_s * figures.devices * rate_flop_s,
            counted_flop=figures.counted_flop,
            train_s=figures.train_s,
            devices=figures.devices,
            sustained_flop_s=rate_flop_s,
            sustained_source=source,
            device_name=figures.device_name,
        )
    )
    return cost
