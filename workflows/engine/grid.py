"""A grid of models: each trial trains and measures one model, as steps of the DAG (`workflows.engine.runner`)."""

from dataclasses import dataclass
from typing import Literal

from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from workflows.engine.dag import Step


@dataclass(frozen=True)
class Trial:
    """One model of the grid."""

    name: str
    training: Step[TrainingRun]
    results: tuple[Step[Artifact], ...]
    """The steps to be made for this model; they depend on `training`."""


@dataclass(frozen=True)
class Unfinished:
    """The reason why a trial has no results."""

    state: Literal["failed", "stopped"]
    reason: str


@dataclass(frozen=True)
class Asha:
    """Stops a trial unless its dev perplexity is in the best third of those that got as far.

    It decides at `rung_updates` updates and at 3, 9, ... times as many (Li et al. 2020, "A system for massively
    parallel hyperparameter tuning").
    """

    longest_updates: int
    rung_updates: int


def stopped_record(trial: Trial) -> str:
    """Returns the name of the record of why a scheduler stopped a trial."""
    return f"stopped/{trial.training.fingerprint}"
