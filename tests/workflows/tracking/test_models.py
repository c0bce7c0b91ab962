"""workflows.tracking.models: readable names, and versions and aliases in a real registry in SQLite."""

import sys
from pathlib import Path

import pytest

from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import Checkpoint
from pipeline.store.store import Store
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus
from workflows.tracking.models import MODEL_TAG, registered_name, serve
from workflows.tracking.server import Server


def test_a_registered_name_ends_no_query() -> None:
    """It has no character that is special in MLflow's queries and addresses."""
    names = {model: registered_name(model, "en-de") for model in ("base", "en-de base", 'it\'s 50% "x" / y')}
    assert [*names.values()] == ["aiayn-en-de-base", "aiayn-en-de-base", "aiayn-en-de-it-s-50-x-y"]


def test_aliases_follow_what_was_measured_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of weights is one model and one version, added once; `newest` and the profile's name move.

    The model of `models:/aiayn-en-de-base@newest` translates like its checkpoint.
    """
    corpus, store, uri = make_corpus(tmp_path / "corpus"), Store(tmp_path), f"sqlite:///{tmp_path}/mlflow.db"
    checkpoints: dict[str, Checkpoint] = {}
    for name in ("first", "second"):
        checkpoints[name] = make_checkpoint(store.folder(name), corpus)
        checkpoints[name].write_json(MANIFEST, {"fingerprint": name})
    server, runs = Server(uri, "table2", tmp_path), {}
    client = server.client
    for name, profile in (("first", "embedded"), ("second", "multi30k"), ("second", "v2"), ("first", "embedded")):
        runs[profile] = client.create_run(server.experiment_id, run_name="en-de base")
        for _ in range(2):
            serve(client, runs[profile], "aiayn-en-de-base", checkpoints[name], store, {"profile": profile})
        newest = client.get_model_version_by_alias("aiayn-en-de-base", "newest")
        assert client.get_logged_model(newest.tags[MODEL_TAG]).tags["aiayn.translator"] == name
        (output,) = client.get_run(runs[profile].info.run_id).outputs.model_outputs
        assert output.model_id == newest.tags[MODEL_TAG]
    assert len(client.search_model_versions("name = 'aiayn-en-de-base'")) == 2
    assert len(client.search_logged_models([server.experiment_id])) == 2
    aliases = client.get_registered_model("aiayn-en-de-base").aliases
    assert aliases.keys() == {"newest", "embedded", "multi30k"}  # v2 would be a version in MLflow's addresses
    assert aliases["newest"] == aliases["embedded"] != aliases["multi30k"]

    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr(sys, "path", sys.path.copy())  # MLflow adds the model's code to it
    loaded = mlflow.pyfunc.load_model("models:/aiayn-en-de-base@newest")
    translator = Translator(checkpoints["first"].folder, DecodingSettings())
    assert loaded.predict(SENTENCES) == translator.translate(SENTENCES)
