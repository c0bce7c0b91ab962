"""Where a model comes from, read from the steps of its DAG: the settings of every step, and what is measured of it."""

import hashlib
from collections.abc import Mapping
from typing import Any

from pipeline.settings import Settings, flatten
from pipeline.store.artifacts import Corpus, EvaluationSet
from workflows.engine.dag import in_order
from workflows.tables.measurements import TrainedModel


def settings_of(model: TrainedModel) -> dict[str, Any]:
    """Returns the settings of each step behind a model, e.g. {"corpus": {...}, "cleaning": {"max_words": 250, ...}}.

    They are those that the steps run with, so that no others can be reported. `corpus` are those of the step that
    provides the training text, with its name; `evaluation_set.dev` and so on are those of evaluation sets.
    """
    settings_by_kind: dict[str, Any] = {}
    for step in in_order(model.results):
        kind = step.stage.short_name
        for argument in step.arguments:
            if isinstance(argument, Settings):
                settings = argument.model_dump(mode="json")
                if step.stage.makes is EvaluationSet:
                    kind = f"{kind}.{settings['name']}"
                is_text = step.stage.makes is Corpus and not step.inputs
                settings_by_kind |= {"corpus": {**settings, "name": kind}} if is_text else {kind: settings}
    return settings_by_kind


def measured_identity(model: TrainedModel) -> str:
    """Returns a hash that two models have in common if the same is measured of the same training."""
    return hashlib.sha256(" ".join(sorted(step.fingerprint for step in model.results)).encode()).hexdigest()


def shared(settings: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the flattened settings that all have in common."""
    if not settings:
        return {}
    first, *others = map(flatten, settings)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
