"""The paper's central claim: better than recurrent and convolutional models, in less time (abstract, §7).

All are trained on the same text with the same loss, optimizer and schedule. The schedule does not depend on the run's
length, so each curve of dev NLL serves every budget: curves are compared where the shortest one ends. Seconds are
updates times the duration of an update, timed for all models in turn, independently of other load during training. Each
seed takes the durations of another round, so the interval includes the error of the timing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.training.speed import ModelSpeed
from workflows.claims.claim import Claim, Finding
from workflows.claims.inference import POSITIVE, Groups, at_least, ratio
from workflows.profiles.profile import COMPETITORS
from workflows.quantities import duration, flop_text

TRANSFORMER = "base"
MODELS = (TRANSFORMER, *COMPETITORS)
COMMAND = "python -m workflows.reproduce_claims --profile multi30k --sections abstract,7"
Budget = Literal["seconds", "flop"]


@dataclass(frozen=True)
class LearningCurve:
    """One run's dev NLL, with the seconds and FLOP of the updates before each measurement."""

    seconds: Sequence[float]
    flop: Sequence[float]
    nll: Sequence[float]
    conditions: str = ""
    """The dtype, and all settings except model, learning rate and seed. Only curves with equal ones are compared."""

    def nll_at(self, budget: Budget, spent: float) -> float:
        """Returns the NLL at a budget, linearly interpolated."""
        return float(np.interp(spent, getattr(self, budget), self.nll))


Curves = Mapping[str, Sequence[LearningCurve]]
"""The curves of each model, one per seed."""
Speeds = Mapping[str, ModelSpeed]
"""The training speed of each model, timed in turn."""


def comparable(curves: Curves) -> bool:
    """Whether there are curves of all models, under equal conditions."""
    conditions = {curve.conditions for of_model in curves.values() for curve in of_model}
    return all(curves.get(model) for model in MODELS) and len(conditions) == 1


def common_budget(curves: Curves, budget: Budget) -> float:
    """Returns the largest budget that all runs have spent."""
    return min(getattr(curve, budget)[-1] for of_model in curves.values() for curve in of_model)


def _better_at_equal(budget: Budget) -> Callable[[Curves], Finding | None]:
    """Judges whether both competitors are behind the Transformer at the same budget."""

    def judge(curves: Curves) -> Finding | None:
        if not comparable(curves):
            return None
        spent = common_budget(curves, budget)
        if any(spent < getattr(curve, budget)[0] for of_model in curves.values() for curve in of_model):
            return None  # a slow model has no measurement before this budget
        groups = Groups({model: [-curve.nll_at(budget, spent) for curve in curves[model]] for model in MODELS})
        where = f"behind the Transformer at {duration(spent) if budget == 'seconds' else f'{flop_text(spent)} FLOP'}"
        tested = {f"{model} {where}": groups.difference(TRANSFORMER, model, POSITIVE) for model in COMPETITORS}
        return Finding.all_of("nats", tested)

    return judge


def _faster(speeds: Speeds) -> Finding:
    """Judges whether an update of each competitor takes longer, at equal tokens and parameters."""
    base = speeds[TRANSFORMER].update_s
    tested = {
        f"{model} / Transformer, time of an update": ratio(speeds[model].update_s, base, at_least(1.0))
        for model in COMPETITORS
    }
    return Finding.all_of("×", tested)


def _better(text: str, budget: Budget) -> Claim:
    judge = _better_at_equal(budget)
    return Claim("abstract", text, "competitors", ("competitors",), judge, data="real text", lacks=COMMAND)


CLAIMS: tuple[Claim, ...] = (
    _better("superior in quality to recurrent and convolutional models after the same time of training", "seconds"),
    _better("and so after as many operations", "flop"),
    Claim(
        "7",
        "it trains significantly faster than recurrent or convolutional layers: an update takes less time",
        "speed of training",
        ("training_speed",),
        _faster,
        kind="timing",
        lacks=COMMAND,
    ),
)
