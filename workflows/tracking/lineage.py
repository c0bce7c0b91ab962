"""A model's provenance, from the steps of its DAG: the settings of each step, and a hash of its measurements."""

import hashlib
from collections.abc import Mapping
from typing import Any

from pipeline.settings import Settings, flatten
from pipeline.store.artifacts import Corpus, EvaluationSet
from workflows.engine.dag import in_order
from workflows.tables.measurements import TrainedModel


def settings_of(model: TrainedModel) -> dict[str, Any]:
    """Returns the settings of each step behind a model, e.g. {"corpus": {...}, "cleaning": {"max_words": 250, ...}}.

    `corpus` has the settings and name of the training text's step, `evaluation_set.dev` and so on those of the
    evaluation sets.
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
    """Returns a hash shared by models with the same measurements of the same run."""
    return hashlib.sha256(" ".join(sorted(step.fingerprint for step in model.results)).encode()).hexdigest()


def shared(settings: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings that all have in common, flattened."""
    if not settings:
        return {}
    first, *others = map(flatten, settings)
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
