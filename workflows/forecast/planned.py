"""What a forecast is asked for: the trainings of an experiment, with `--plan`."""

from dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings


@dataclass(frozen=True)
class Planned:
    """Trainings that differ only in their seed."""

    name: str
    pair: str
    training: TrainingSettings
    models: int = 1
    """Copies of the averaged model that each leaves."""
    times: int = 1
    """Number of trainings (seeds)."""
    averaged: int = 1
    """Number of checkpoints of each that are averaged."""


def only_with_plan(plan: bool, gpus: int | None, gpu: str | None) -> None:
    """Raises UserError if `--gpus` or `--gpu` is given without `--plan`."""
    if not plan and (gpus is not None or gpu is not None):
        raise UserError("--gpus and --gpu name the hardware that --plan forecasts for; add --plan, or drop them")
