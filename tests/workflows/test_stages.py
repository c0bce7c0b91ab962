from pkgutil import resolve_name
from typing import Any, get_type_hints

import pytest

from workflows import stages
from workflows.engine.dag import Imported, Stage
from workflows.experiments import EXPERIMENTS
from workflows.profiles.loading import load_profile
from workflows.reproduce_table2 import cells_of

MODULES = (stages, *(resolve_name(each.module) for each in EXPERIMENTS.values()))
NAMED = {
    stage.name: stage
    for module in MODULES
    for stage in vars(module).values()
    if isinstance(stage, Stage) and isinstance(stage.function, Imported)
}


@pytest.mark.parametrize("name", NAMED)
def test_the_named_function_returns_the_stages_artifact(name: str) -> None:
    """mypy checks functions that are passed directly; this checks those that are named."""
    stage = NAMED[name]
    assert isinstance(stage.function, Imported)
    assert get_type_hints(resolve_name(stage.function.name))["return"] is stage.makes


@pytest.mark.parametrize("name", ["embedded", "multi30k", "wmt14"])
def test_the_report_is_on_the_updates_of_the_first_recipe(name: str) -> None:
    profile, names = load_profile(name), {"budget_tokens", "mixes_lengths", "seed"}
    batches = stages.prepared(profile, "en-de").report.arguments[-1]
    assert batches.model_dump(include=names) == profile.recipes["base"].training.model_dump(include=names)


def test_several_models_train_side_by_side() -> None:
    """A thread each, unless set; a model that trains alone has two."""

    def layout(*models: str, **settings: Any) -> dict[str, tuple[Any, ...]]:
        cells = cells_of(load_profile("multi30k", **settings), ["en-de"], models)
        of = [(cell.model, cell.recipe.training, cell.training.name) for cell in cells]
        return {model: (training.cpus_per_worker, training.workers, name) for model, training, name in of}

    *alone, name = layout("base")["base"]
    assert alone == [2, 0]
    assert layout("base", "long")["base"] == (1, 1, name)
    assert layout("base", "long", overrides=["recipes.base.training.threads=2"])["base"] == (2, 0, name)
