"""Computes a training's cost in floating point operations: the paper's way (§6.1, footnote 5), and counted.

The paper's way is an estimate from outside: training time × devices × sustained rate. It also counts the time in which
a device does not multiply, so it comes out higher than the operations counted from the model. Where the devices changed
during a training, the cost is the sum over its stretches.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.figures import Figures

PAPER_SUSTAINED_FLOP_S = MappingProxyType({"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12})
"""The sustained single-precision operations a second of one GPU (footnote 5)."""
PAPER_DEVICE_NAME = re.compile(
    r"(NVIDIA )?(Tesla )?(?P<device>K80|K40|M40|P100)((?<=K40)(c|m|s|st))?([ -].*)?", re.IGNORECASE
)
"""The names that drivers give these boards: `Tesla K40m`, `Tesla M40 24GB`, `Tesla P100-PCIE-16GB`."""
RateSource = Literal["paper", "measured"]


class CostFigures(Figures):
    """`cost.json`: both costs, and what went into them."""

    paper_way_flop: float
    """Time × sustained rate, summed over all devices and stretches of the training."""
    counted_flop: float
    """Operations of the model's matrix products."""
    train_s: float
    devices: int
    """Number of devices in the last stretch."""
    sustained_flop_s: float
    """The rate of one device: the mean over the time of all devices."""
    sustained_source: RateSource
    """"measured" if the rate of any device was."""
    device_name: str
    """The names of the devices in the last stretch."""
    device_s: float
    """The time of all devices together, in seconds."""


@dataclass(frozen=True)
class Cost(JsonArtifact[CostFigures]):
    """`cost.json`: both costs of a training, in FLOP."""

    figures_file = "cost.json"


def sustained_flop_s(device_name: str, measured_flop_s: float) -> tuple[float, RateSource]:
    """Returns the rate of one device and its source: "paper" (footnote 5), or "measured" for any other device."""
    device = paper_device(device_name)
    return (PAPER_SUSTAINED_FLOP_S[device], "paper") if device else (measured_flop_s, "measured")


def paper_device(device_name: str) -> str | None:
    """Returns which device of footnote 5 a name is of, e.g. P100 for `Tesla P100-SXM2-16GB`; None if it is of none."""
    match = PAPER_DEVICE_NAME.fullmatch(device_name)
    return match["device"].upper() if match else None


def count(context: Context, run: TrainingRun) -> Cost:
    """Writes the costs of a finished training. Raises UserError where `run.json` lacks a figure."""
    figures = run.load()
    paper_way_flop = device_s = 0.0
    sources: set[RateSource] = set()
    for stretch in figures.stretches:
        for device in stretch.devices:
            rate_flop_s, source = sustained_flop_s(device.name, device.matmul_flop_s)
            sources.add(source)
            device_s += stretch.train_s * device.count
            paper_way_flop += stretch.train_s * device.count * rate_flop_s
    cost = Cost(context.folder)
    cost.write(
        CostFigures(
            paper_way_flop=paper_way_flop,
            counted_flop=figures.counted_flop,
            train_s=figures.train_s,
            devices=figures.devices,
            sustained_flop_s=paper_way_flop / device_s,
            sustained_source="measured" if "measured" in sources else "paper",
            device_name=figures.device_name,
            device_s=device_s,
        )
    )
    return cost
