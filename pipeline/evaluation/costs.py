"""A run's training cost in FLOP: by the paper's method (§6.1, footnote 5), and counted.

The paper's method is training time × devices × sustained rate. It includes time in which a device does not multiply, so
it exceeds the FLOP counted from the model. If devices changed during a run, the cost is summed over its segments. Runs
on CPUs have no such cost, since both time and rate depend on other load.
"""

import re
from types import MappingProxyType
from typing import Literal

from pipeline.artifacts import TrainingRun
from pipeline.context import Context
from pipeline.records import Record
from pipeline.store.artifact import JsonArtifact

PAPER_SUSTAINED_FLOP_S = MappingProxyType({"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12})
"""Sustained single-precision FLOP/s of one GPU (footnote 5)."""
PAPER_DEVICE_NAME = re.compile(
    r"(NVIDIA )?(Tesla )?(?P<device>K80|K40|M40|P100)((?<=K40)(c|m|s|st))?([ -].*)?", re.IGNORECASE
)
"""Driver names of these boards: `Tesla K40m`, `Tesla M40 24GB`, `Tesla P100-PCIE-16GB`."""
RateSource = Literal["paper", "measured"]


class CostRecord(Record):
    """`cost.json`: both costs; `run.json` has times and devices."""

    paper_way_flop: float | None
    """Time × sustained rate, summed over devices and segments; None if a rate is unknown."""
    counted_flop: float
    """FLOP of the model's matrix products."""


class Cost(JsonArtifact[CostRecord]):
    """`cost.json`: both costs of a run, in FLOP."""

    record_file = "cost.json"


def sustained_flop_s(device_name: str, measured_flop_s: float | None) -> tuple[float, RateSource] | None:
    """Returns a device's rate and its source: "paper" (footnote 5), for others "measured"; None if it was not."""
    if device := paper_device(device_name):
        return PAPER_SUSTAINED_FLOP_S[device], "paper"
    return None if measured_flop_s is None else (measured_flop_s, "measured")


def paper_device(device_name: str) -> str | None:
    """Returns the footnote 5 device that a driver name denotes, e.g. P100 for `Tesla P100-SXM2-16GB`, or None."""
    match = PAPER_DEVICE_NAME.fullmatch(device_name)
    return match["device"].upper() if match else None


def count(context: Context, run: TrainingRun) -> Cost:
    """Writes the costs of a finished run. Raises UserError if `run.json` is incomplete."""
    record, flop = run.load(), list[float | None]()
    for segment in record.segments:
        for device in segment.devices:
            rate = sustained_flop_s(device.name, device.matmul_flop_s)
            flop.append(None if rate is None else segment.train_s * device.count * rate[0])
    known = [each for each in flop if each is not None]
    total = sum(known) if len(known) == len(flop) else None
    return Cost(context.folder).write(CostRecord(paper_way_flop=total, counted_flop=record.counted_flop))
