"""workflows.tracking.models: readable names, and versions and aliases in a real registry in SQLite."""

import json
import sys
from pathlib import Path

import pytest
from mlflow.entities import Dataset, DatasetInput

from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import Checkpoint
from pipeline.store.store import Store
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus
from workflows.tracking.addresses import default_uri
from workflows.tracking.models import MODEL_TAG, registered_name, serve
from workflows.tracking.server import Server


def test_a_registered_name_ends_no_query() -> None:
    """It has no character that is special in MLflow's queries and addresses."""
    names = {model: registered_name(model, "en-de") for model in ("base", "en-de base", 'it\'s 50% "x" / y')}
    assert [*names.values()] == ["aiayn-en-de-base", "aiayn-en-de-base", "aiayn-en-de-it-s-50-x-y"]


SEARCH = DecodingSettings(beam_size=2, length_penalty=1.4, max_extra_tokens=3)


def test_aliases_follow_what_was_measured_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of weights with a search is one model and one version, added once; `newest` and the profile's name move.

    The model of `models:/aiayn-en-de-base@newest` translates like its checkpoint, with the search that was measured,
    also after the store has been moved.
    """
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    before = tmp_path / "my 100% runs"
    before.mkdir()
    corpus, store, uri = make_corpus(tmp_path / "corpus"), Store(before), default_uri(before)
    checkpoints: dict[str, Checkpoint] = {}
    for name in ("first", "second"):
        checkpoints[name] = make_checkpoint(store.folder(name), corpus)
        checkpoints[name].write_json(MANIFEST, {"fingerprint": name})
    server, runs = Server(uri, "table2", before), {}
    client = server.client
    paper = DecodingSettings()
    measured = [("first", "embedded", paper), ("second", "multi30k", paper), ("second", "v2", paper)]
    for name, profile, search in (*measured, ("first", "embedded", SEARCH)):
        runs[profile] = client.create_run(server.experiment_id, run_name="en-de base")
        for _ in range(2):
            serve(client, runs[profile], "aiayn-en-de-base", checkpoints[name], search, store, {"profile": profile})
        newest = client.get_model_version_by_alias("aiayn-en-de-base", "newest")
        assert client.get_logged_model(newest.tags[MODEL_TAG]).tags["aiayn.translator"].startswith(name)
        (output,) = client.get_run(runs[profile].info.run_id).outputs.model_outputs
        assert output.model_id == newest.tags[MODEL_TAG]
    assert len(client.search_model_versions("name = 'aiayn-en-de-base'")) == 3
    assert len(client.search_logged_models([server.experiment_id])) == 3
    aliases = client.get_registered_model("aiayn-en-de-base").aliases
    assert aliases.keys() == {"newest", "embedded", "multi30k"}  # v2 would be a version in MLflow's addresses
    assert aliases["newest"] == aliases["embedded"] != aliases["multi30k"]

    import mlflow
    from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

    client.log_text(runs["embedded"].info.run_id, "a text", "samples.txt")
    text = json.dumps({"uri": store.folder("first").as_uri()})
    client.log_inputs(runs["embedded"].info.run_id, [DatasetInput(Dataset("text", "1", "local", text), [])])
    server.mark_complete("workflow")
    after = before.rename(tmp_path / "results")
    _artifact_repos_cache.clear()  # like in another process
    moved = Server(default_uri(after), "table1", after)
    assert not moved.is_complete("workflow")
    assert moved.experiment_id != server.experiment_id
    (folder,) = moved.client.list_artifacts(runs["embedded"].info.run_id)
    moved.client.log_text(runs["embedded"].info.run_id, "b", "failure.txt")
    assert folder.path == "samples.txt"
    (text,) = moved.client.get_run(runs["embedded"].info.run_id).inputs.dataset_inputs
    assert json.loads(text.dataset.source) == {"uri": (after / "store" / "first").as_uri()}
    assert not before.exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", moved.uri)
    monkeypatch.setattr(sys, "path", sys.path.copy())  # MLflow adds the model's code to it
    loaded = mlflow.pyfunc.load_model("models:/aiayn-en-de-base@newest")
    translator = Translator(Store(after).folder("first"), SEARCH)
    assert loaded.predict(SENTENCES) == translator.translate(SENTENCES)
    assert loaded.predict(SENTENCES) != translator.with_settings(paper).translate(SENTENCES)
