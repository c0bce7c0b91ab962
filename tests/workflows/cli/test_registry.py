"""`aiayn export mlflow` in a separate process, into a real registry in SQLite, and what MLflow then loads."""

import json
import os
import sys
from pathlib import Path

import mlflow
import pytest

from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from tests.support.tiny_checkpoint import SENTENCES
from tests.support.tiny_parser import make_parser, make_trees
from tests.support.tiny_profile import MadeTable2, run_in_process
from workflows.cli.registry import registered_name
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import Server

EXPORT = (sys.executable, "-m", "workflows.cli", "export", "mlflow")


def test_a_registered_name_ends_no_query() -> None:
    assert registered_name('en-de it\'s 50% "x" / y') == "aiayn-en-de-it-s-50-x-y"


def test_searches_like_its_table(copy_of_table2: MadeTable2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each export is a version, linked to the table's run. The aliases lead to the last one, also after the store has
    been moved, like MLflow's other addresses."""
    before, search = copy_of_table2.store, DecodingSettings(beam_size=2, length_penalty=1.4, max_extra_tokens=3)
    for path in before.glob("store/decoding-*/decoding.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "settings": search.model_dump(mode="json")}))
    for version in "12":
        done = run_in_process(*EXPORT, f"{before}/table2/embedded/en-de-base")
        assert done.returncode == 0, done.stderr
        assert f" mlflow models serve -m models:/aiayn-en-de-base/{version} --env-manager local" in done.stdout
        assert f" MLFLOW_TRACKING_URI=sqlite:///{before}/mlflow.db " in done.stdout
    after = before.rename(tmp_path / "my 100% runs")
    moved = Server(default_uri(after), "table1", after)
    assert not moved.is_complete("workflow")
    assert moved.experiment_id
    assert moved.client.get_registered_model("aiayn-en-de-base").aliases == {"newest": 2, "embedded": 2}
    run = moved.client.get_run(moved.client.get_model_version_by_alias("aiayn-en-de-base", "newest").run_id)
    assert (run.info.run_name, run.info.status, len(run.outputs.model_outputs)) == ("en-de base", "FINISHED", 2)
    files = {file.path for file in moved.client.list_artifacts(run.info.run_id)}
    assert files == {"samples.txt", "dev_samples.txt", "manifest.json"}
    places = [json.loads(each.dataset.source)["uri"] for each in run.inputs.dataset_inputs]
    assert all(place.startswith((after / "store").as_uri()) for place in places)
    assert not before.exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", moved.uri)
    monkeypatch.setattr(sys, "path", sys.path.copy())  # MLflow adds the model's code to it
    loaded = mlflow.pyfunc.load_model("models:/aiayn-en-de-base@newest")
    (checkpoint,) = after.glob("store/averaging-*")
    assert loaded.predict(SENTENCES) == Translator(checkpoint, search).translate(SENTENCES)
    assert loaded.predict(SENTENCES) != Translator(checkpoint, DecodingSettings()).translate(SENTENCES)


def test_a_parser_outside_a_store(tmp_path: Path) -> None:
    """It is registered by its folder's name. An address where no server answers is one line."""
    parser = make_parser(tmp_path / "my parser", make_trees(tmp_path))
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/own.db"}
    done = run_in_process(*EXPORT, str(parser.folder), environment=environment)
    assert done.returncode == 0, done.stderr
    assert "models:/aiayn-my-parser/1 " in done.stdout
    assert "MLFLOW_TRACKING_URI" not in done.stdout
    environment["MLFLOW_TRACKING_URI"] = "http://me:secret@127.0.0.1:9"
    done = run_in_process(*EXPORT, str(parser.folder), environment=environment)
    assert (done.returncode, done.stderr.count("\n"), "secret" in done.stderr) == (2, 1, False), done.stderr
    assert "error: MLflow at http://127.0.0.1:9 does not answer" in done.stderr
