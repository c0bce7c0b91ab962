"""One half-trained model of each kind a session, which each file of tests exports once."""

from importlib import import_module
from pathlib import Path

import pytest

from model.transformer import Transformer
from pipeline.artifacts import Checkpoint
from tests.support.contexts import new_context
from tests.support.half_trained import MODELS, make_model


@pytest.fixture(scope="session", params=MODELS)
def half_trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path]:
    folder = tmp_path_factory.mktemp("half_trained") / "checkpoint"
    return make_model(folder, **MODELS[request.param]), folder


@pytest.fixture(scope="module")
def exported(request: pytest.FixtureRequest, half_trained: tuple[Transformer, Path]) -> tuple[Transformer, Path]:
    """The model, and the folder to which the module of that test has exported it, beside its checkpoint."""
    (model, checkpoint), name = half_trained, request.module.__name__.rpartition(".test_")[2]
    folder = checkpoint.with_name(name)
    import_module(f"pipeline.export.{name}").export(new_context(folder), Checkpoint(checkpoint))
    return model, folder
