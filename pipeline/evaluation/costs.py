"""Computes a training's cost in floating point operations: by the paper's method (§6.1, footnote 5), and counted.

The paper's method is an estimate from outside: training time × devices × sustained rate. It also counts the time in
which a device does not multiply, so it comes out higher than the operations counted from the model. Where the devices
changed during a training, the cost is the sum over its segments. A training on CPUs has none: both its time and a
CPU's rate depend on what else runs on the machine.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.records import Record

PAPER_SUSTAINED_FLOP_S = MappingProxyType({"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12})
"""The sustained single-precision operations a second of one GPU (footnote 5)."""
PAPER_DEVICE_NAME = re.compile(
    r"(NVIDIA )?(Tesla )?(?P<device>K80|K40|M40|P100)((?<=K40)(c|m|s|st))?([ -].*)?", re.IGNORECASE
)
"""The names that drivers give these boards: `Tesla K40m`, `Tesla M40 24GB`, `Tesla P100-PCIE-16GB`."""
RateSource = Literal["paper", "measured"]


class CostRecord(Record):
    """`cost.json`: both costs, and what went into them."""

    paper_way_flop: float | None
    """Time × sustained rate, summed over all devices and segments of the training; None if a rate is not known."""
    counted_flop: float
    """Operations of the model's matrix products."""
    train_s: float
    devices: int
    """Number of devices in the last segment."""
    sustained_flop_s: float | None
    """The rate of one device: the mean over the time of all devices."""
    sustained_source: RateSource | None
    """"measured" if the rate of any device was."""
    device_name: str
    """The names of the devices in the last segment."""
    device_s: float
    """The time of all devices together, in seconds."""


@dataclass(frozen=True)
class Cost(JsonArtifact[CostRecord]):
    """`cost.json`: both costs of a training, in FLOP."""

    record_file = "cost.json"


def sustained_flop_s(device_name: str, measured_flop_s: float | None) -> tuple[float, RateSource] | None:
    """Returns the rate of one device and its source: "paper" (footnote 5), or "measured" for any other device.

    None if the rate of another device was not measured.
    """
    if device := paper_device(device_name):
        return PAPER_SUSTAINED_FLOP_S[device], "paper"
    return None if measured_flop_s is None else (measured_flop_s, "measured")


def paper_device(device_name: str) -> str | None:
    """Returns which device of footnote 5 a name is of, e.g. P100 for `Tesla P100-SXM2-16GB`; None if it is of none."""
    match = PAPER_DEVICE_NAME.fullmatch(device_name)
    return match["device"].upper() if match else None


def count(context: Context, run: TrainingRun) -> Cost:
    """Writes the costs of a finished training. Raises UserError where `run.json` lacks a figure."""
    figures = run.load()
    used = [(segment.train_s * device.count, device) for segment in figures.segments for device in segment.devices]
    device_s = sum(time_s for time_s, _ in used)
    known = [(time_s, rate) for time_s, each in used if (rate := sustained_flop_s(each.name, each.matmul_flop_s))]
    paper_way_flop = sum(time_s * flop_s for time_s, (flop_s, _) in known) if len(known) == len(used) else None
    source: RateSource = "measured" if any(source == "measured" for _, (_, source) in known) else "paper"
    return Cost(context.folder).write(
        CostRecord(
            paper_way_flop=paper_way_flop,
            counted_flop=figures.counted_flop,
            train_s=figures.train_s,
            devices=figures.devices,
            sustained_flop_s=None if paper_way_flop is None else paper_way_flop / device_s,
            sustained_source=None if paper_way_flop is None else source,
            device_name=figures.device_name,
            device_s=device_s,
        )
    )
