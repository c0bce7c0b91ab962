from pkgutil import resolve_name
from typing import Any, get_type_hints

import pytest

from pipeline.settings import DecodingSettings
from workflows import stages
from workflows.engine.dag import Imported, Stage, in_order, to_step
from workflows.experiments import EXPERIMENTS
from workflows.profiles.changes import checked
from workflows.profiles.loading import load_profile
from workflows.profiles.translation import EMBEDDED
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


def test_another_engine_searches_with_the_exported_model() -> None:
    text, recipe = stages.prepared(EMBEDDED, "en-de"), EMBEDDED.recipes["base"]

    def steps(**changes: str) -> dict[str, str]:
        decoding = checked(DecodingSettings, **changes)
        measured = stages.trained(text, "base", recipe, decoding, with_dev_scores=True)
        wanted = (measured.scores, measured.dev_scores)
        return {step.label: step.fingerprint for step in in_order(to_step(step) for step in wanted if step)}

    ours, theirs = steps(), steps(engine="ctranslate2")
    assert theirs.keys() - ours.keys() == {"export en-de base"}
    assert {name for name in ours if ours[name] != theirs[name]} == {"decode en-de base", "score en-de base"}
    in_int8 = steps(engine="ctranslate2", dtype="int8")
    assert in_int8["export en-de base"] == theirs["export en-de base"]
    assert in_int8["decode en-de base"] != theirs["decode en-de base"]
    assert in_int8["dev scores en-de base"] == ours["dev scores en-de base"]


def test_only_a_transformer_is_exported_for_decoding() -> None:
    profile = load_profile("embedded", overrides=["decoding.engine=ctranslate2"])
    cells = {cell.model: cell for cell in cells_of(profile, ["en-de"], ["base", "recurrent"])}
    exported = {
        model: [step.label for step in in_order(cell.steps) if step.stage is stages.EXPORT]
        for model, cell in cells.items()
    }
    assert exported == {"base": ["export en-de base"], "recurrent": []}


def test_several_models_train_side_by_side() -> None:
    """A thread each, unless set; a model that trains alone has two."""

    def layout(*models: str, **settings: Any) -> dict[str, tuple[Any, ...]]:
        cells = cells_of(load_profile("multi30k", **settings), ["en-de"], models)
        of = [(cell.model, cell.settings, to_step(cell.training).name) for cell in cells]
        return {model: (training.cpus_per_worker, training.workers, name) for model, training, name in of}

    *alone, name = layout("base")["base"]
    assert alone == [2, 0]
    assert layout("base", "long")["base"] == (1, 1, name)
    assert layout("base", "long", overrides=["recipes.base.training.threads=2"])["base"] == (2, 0, name)


def test_steps_of_a_tenth_of_a_second_wait_for_no_cpu() -> None:
    """Training runs may hold all of them for minutes."""
    short = (stages.AVERAGE, stages.COST, stages.SUBSTITUTE, stages.REBUILD_PARSES, stages.SCORE_PARSES)
    assert {stage.cpus for stage in short} == {0}
