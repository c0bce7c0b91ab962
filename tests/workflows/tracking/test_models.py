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
from workflows.tracking.models import MODEL_TAG, keep, register, registered_name
from workflows.tracking.tracker import Tracker


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("base", "aiayn-en-de-base"),
        ("en-de base", "aiayn-en-de-base"),
        ('it\'s 50% "x" / y', "aiayn-en-de-it-s-50-x-y"),
    ],
)
def test_a_registered_name_ends_no_query(model: str, name: str) -> None:
    """It has no character that is special in MLflow's queries and addresses."""
    assert registered_name(model, "en-de") == name


def test_aliases_follow_what_was_measured_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of weights is one model and one version, added once; `newest` and the profile's name move.

    The model of `models:/aiayn-en-de-base@newest` translates like its checkpoint.
    """
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    corpus, store = make_corpus(tmp_path / "corpus"), Store(tmp_path)
    checkpoints: dict[str, Checkpoint] = {}
    for name in ("first", "second"):
        checkpoints[name] = make_checkpoint(store.folder(name), corpus)
        checkpoints[name].write_json(MANIFEST, {"fingerprint": name})
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for name, profile in (("first", "embedded"), ("second", "multi30k"), ("second", "multi30k"), ("first", "embedded")):
        tracker = Tracker(uri, "table2", tmp_path)
        run = tracker.open({"aiayn.training": name}, "en-de base", {}).info.run_id
        client, tags = tracker.client, {"pair": "en-de", "profile": profile}
        model_id = keep(client, tracker.experiment_id, run, checkpoints[name], store)
        register(client, "aiayn-en-de-base", model_id, run, tags)
        newest = client.get_model_version_by_alias("aiayn-en-de-base", "newest")
        assert newest.run_id == run
        assert newest.tags.items() >= {"pair": "en-de", "profile": profile}.items()
        assert client.get_logged_model(newest.tags[MODEL_TAG]).source_run_id == run
        assert client.get_model_version_by_alias("aiayn-en-de-base", profile).version == newest.version
    assert len(client.search_model_versions("name = 'aiayn-en-de-base'")) == 2
    assert client.get_model_version_by_alias("aiayn-en-de-base", "multi30k").tags["profile"] == "multi30k"

    other = tracker.open({"aiayn.training": "another"}, "en-de base", {}).info.run_id
    assert keep(client, tracker.experiment_id, other, checkpoints["first"], store) == model_id
    for each in (run, other):
        assert [output.model_id for output in client.get_run(each).outputs.model_outputs] == [model_id]
    assert len(client.search_logged_models([tracker.experiment_id])) == 2

    register(client, "aiayn-en-de-base", model_id, run, {"profile": "v2"})  # an alias reserved by MLflow

    import mlflow

    path, before = sys.path.copy(), mlflow.get_tracking_uri()
    try:
        mlflow.set_tracking_uri(uri)
        loaded = mlflow.pyfunc.load_model("models:/aiayn-en-de-base@newest")
        assert loaded.predict(SENTENCES) == Translator(checkpoints["first"].folder, DecodingSettings()).translate(
            SENTENCES
        )
    finally:
        mlflow.set_tracking_uri(before)
        sys.path[:] = path  # MLflow added the model's code to it
