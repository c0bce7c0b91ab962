"""Training cost in floating point operations, the paper's way (§6.1, footnote 5) and counted.

The paper's way is an estimate from outside: training time × devices × sustained single-precision rate. It also counts
the time in which a device does not multiply, so it comes out higher than the operations counted from the model.
"""

from dataclasses import dataclass
from types import MappingProxyType

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact, Context
from pipeline.store.artifacts import TrainingRun

PAPER_SUSTAINED_FLOP_S = MappingProxyType({"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12})
"""Sustained single-precision operations a second of one GPU (footnote 5)."""


@dataclass(frozen=True)
class Cost(Artifact):
    """`cost.json`: both costs of a training, in FLOP, with what went into them."""

    figures_file = "cost.json"


def sustained_flop_s(device_name: str, measured_flop_s: float) -> tuple[float, str]:
    """Rate of one device and its origin: "paper" (footnote 5) or, for other devices, "measured" (given here)."""
    for name, flop_s in PAPER_SUSTAINED_FLOP_S.items():
        if name in device_name.upper().replace("-", " ").split():
            return flop_s, "paper"
    return measured_flop_s, "measured"


def count(context: Context, run: TrainingRun) -> Cost:
    """Costs of a finished training: writes `cost.json`. Raises UserError where `run.json` lacks a figure it needs."""
    figures = run.read_json("run.json")
    try:
        rate_flop_s, source = sustained_flop_s(figures["device_name"], figures["matmul_flop_s"])
        described = {
            "paper_way_flop": figures["train_s"] * figures["devices"] * rate_flop_s,
            "counted_flop": figures["counted_flop"],
            "train_s": figures["train_s"],
            "devices": figures["devices"],
            "sustained_flop_s": rate_flop_s,
            "sustained_source": source,
            "device_name": figures["device_name"],
        }
    except KeyError as missing:
        raise UserError(f"{run.folder}/run.json has no {missing}; remove {run.folder} and train again") from None
    cost = Cost(context.folder)
    cost.write_json("cost.json", described)
    return cost
