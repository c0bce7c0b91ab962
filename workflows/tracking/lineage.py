"""What MLflow shows of the steps behind a model: their settings, and the texts they read."""

import json
from typing import Any

from pipeline.settings import Settings, flatten
from pipeline.store.artifacts import Corpus, EvaluationSet
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order
from workflows.tables.measurements import TrainedModel
from workflows.tracking.addresses import without_password


def settings_of(model: TrainedModel) -> dict[str, str]:
    """Returns the settings of each step behind a model, e.g. {"corpus.pairs": "600", "cleaning.max_words": "250", ...}.

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
                settings_by_kind |= {"corpus": {**settings, "name": kind}} if _is_text(step) else {kind: settings}
    return to_params(settings_by_kind)


def datasets_of(model: TrainedModel, store: Store) -> list[Any]:
    """Returns the training text and the evaluation sets behind a model, as inputs of an MLflow run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    datasets = []
    for step in in_order(model.results):
        if _is_text(step) or step.stage.makes is EvaluationSet:
            place = f"{store.uri}/{step.name}" if store.uri else store.folder(step.name).absolute().as_uri()
            source = json.dumps({"uri": place})
            dataset = Dataset(step.label, step.fingerprint, "s3" if store.uri else "local", source)
            context = "training" if _is_text(step) else "evaluation"
            datasets.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return datasets


def to_params(settings: Any) -> dict[str, str]:
    """Flattens settings to MLflow's parameters, without passwords."""
    return {name: without_password(str(value)) for name, value in flatten(settings).items()}


def _is_text(step: Step[Any]) -> bool:
    return step.stage.makes is Corpus and not step.inputs
