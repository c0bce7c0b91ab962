"""What a forecast is of: the trainings behind an experiment's models."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipeline.settings import TrainingSettings
from workflows.engine.dag import to_step
from workflows.tables.measurements import TrainedModel


@dataclass(frozen=True)
class Planned:
    """Trainings that differ only in their seed."""

    name: str
    pair: str
    training: TrainingSettings
    averaged: int = 1
    """Number of checkpoints of each that are averaged."""
    times: int = 1
    """Number of trainings (seeds)."""


def planned_of(models: Iterable[TrainedModel]) -> list[Planned]:
    """Returns the trainings of some models, whose settings are read from the steps that train and average them."""
    by_name: dict[str, Planned] = {}
    for model in models:
        name = model.model if model.model.startswith(model.pair) else f"{model.pair} {model.model}"
        if name in by_name:
            by_name[name] = replace(by_name[name], times=by_name[name].times + 1)
        else:
            training, averaging = (to_step(ref).arguments[1] for ref in (model.training, model.checkpoint))
            by_name[name] = Planned(name, model.pair, training, averaging.last)
    return list(by_name.values())
