"""Each stage downloads the files that its inputs' outlines lack: the real stages, each on a separate machine.

The machines share no disk but a bucket of a real S3 server. Run by `make test-slow`.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import workflows
from pipeline.evaluation import decoding
from pipeline.store.artifact import Artifact, Context
from pipeline.store.store import Store
from pipeline.training import layout, on_ray
from tests.support.s3_server import S3Server
from workflows import reproduce_table2, reproduce_table4, stages
from workflows.command_line import UNKNOWN
from workflows.engine.dag import Imported, Stage, Step, in_order, resolved
from workflows.figures.drawing import DRAW, FigureSettings
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1200)]

MODEL = "{n_layers = 1, d_model = 16, d_ff = 32, n_heads = 2, d_k = 8, d_v = 8}"
TRAINING = {"updates": 4, "checkpoint_updates": 2, "validation_updates": 4, "model": MODEL, "workers": 1}
OF_ALL = {"decoding.max_extra_tokens": 5, "decoding.threads": 2, "decoding.workers": 1, "vocabulary.size": 300}
TRANSLATOR = {
    **OF_ALL,
    **{f"recipes.base.training.{name}": value for name, value in TRAINING.items()},
    "recipes.base.averaging.last": 2,
    "corpora.en-de": "{train_pairs = 400, dev_pairs = 20, test_pairs = 8}",
    "choice.beam_sizes": [1],
    "choice.length_penalties": [0.6],
}
PARSER = {
    **OF_ALL,
    **{f"recipes.parser.training.{name}": value for name, value in TRAINING.items()},
    "recipes.parser.averaging.last": 1,
    "corpora.supervised": "{train_pairs = 400, dev_pairs = 8, test_pairs = 8}",
    "choice.dropouts": [0.0],
    "choice.beam_sizes": [1],
}
LARGE = (".arrow", ".safetensors", ".model", ".bin", ".en", ".de", ".trees")
"""Suffixes of files that no outline has."""


def all_stages() -> Iterator[Stage[Artifact]]:
    for module in pkgutil.walk_packages(workflows.__path__, "workflows."):
        if not module.name.endswith("__main__"):
            values = vars(importlib.import_module(module.name)).values()
            yield from (value for value in values if isinstance(value, Stage))


def outlined(stage: Stage[Artifact]) -> set[type[Artifact]]:
    function: Any = stage.function
    if isinstance(function, Imported):
        function = pkgutil.resolve_name(function.name)
    hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    waiting, found = [*hints.values()], set[type[Artifact]]()
    for hint in waiting:
        waiting += get_args(hint)
        if isinstance(hint, type) and issubclass(hint, Artifact) and hint.outline is not None:
            found.add(hint)
    return found


def translator() -> list[Step[Any]]:
    profile = load_profile(overrides=[f"{name}={value}" for name, value in TRANSLATOR.items()]).for_pair("en-de")
    text, recipe = stages.prepared(profile, "en-de"), profile.recipes["base"]
    cell = stages.trained(text, "base", recipe, profile.decoding, with_dev_scores=True, chosen_from=profile.choice)
    return [
        reproduce_table2.TABULATE("table 2", [cell], {}, [text.report], UNKNOWN),
        DRAW("figures", cell.checkpoint, FigureSettings(name="base", sentences=("The lamp is old.",))),
    ]


def parser() -> list[Step[Any]]:
    profile = load_parsing_profile(overrides=[f"{name}={value}" for name, value in PARSER.items()])
    name = next(iter(profile.corpora))
    grid = reproduce_table4.ParserGrid(profile.for_pair(name), name, profile.data)
    return [reproduce_table4.TABULATE("table 4", [grid.row({})], [grid.text.report], UNKNOWN)]


@pytest.fixture
def uri(at_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket. Workers and actors run on another machine than the stages."""
    there = {**at_s3.variables, "AIAYN_CACHE": str(tmp_path / "of workers"), "OMP_NUM_THREADS": "1"}
    for module in (layout, on_ray, decoding):
        monkeypatch.setattr(module, "worker_environment", lambda: there)
    return at_s3.bucket()


def make(step: Step[Any], uri: str) -> Store:
    """Builds the artifact of a step whose inputs are in the bucket; returns this machine's store."""
    store = Store.at(uri)
    artifacts = {needed.fingerprint: needed.published(store) for needed in step.inputs}
    arguments = resolved(step.arguments, lambda needed: artifacts[needed.fingerprint])
    with store.lock(step.name, step.label) as lock:
        assert lock.take() is None

        def stage(folder: Path) -> Artifact:
            return step.stage.function(
                Context(folder, shared=store.shared_scratch(step.name, lock), added=added), *arguments
            )

        added: dict[str, Any] = {}
        described = {"label": step.label, "stage": step.stage.name, "fingerprint": step.fingerprint, "inputs": []}
        store.publish(step.name, stage, described, holds_lock=lock.is_ours, added=added)
    return store


@pytest.mark.usefixtures("ray_cluster")
def test_each_stage_brings_what_it_opens(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was not downloaded would be missing. Tables download only outlines of their inputs."""
    made = set[str]()
    for number, step in enumerate(in_order([*translator(), *parser()])):
        monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / f"machine-{number}"))
        store = make(step, uri)
        made.add(step.stage.name)
        if step.stage.follows_source and step.stage is not DRAW:
            large = [path for path in store.artifacts.rglob("*.*") if path.suffix in LARGE]
            brought = [path for path in large if not path.is_relative_to(store.folder(step.name))]
            kinds = {path.relative_to(store.artifacts).parts[0].partition("-")[0] for path in brought}
            assert kinds <= {"decoding", "evaluation_set", "parses"}
    missed = {stage.name for stage in all_stages() if outlined(stage)} - made
    assert not missed, "make them here, too: another test would not notice a file that they do not bring"
