"""The model that MLflow keeps with a run, loaded in this process and served over HTTP by another."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.store.artifacts import Checkpoint
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus
from workflows.tracking import models
from workflows.tracking.tracker import Tracker

STARTS_S = 60.0


class Kept(NamedTuple):
    """A checkpoint and the model that MLflow made from it."""

    checkpoint: Checkpoint
    tracker: Tracker
    run: str
    model: Any

    @property
    def folder(self) -> Path:
        """The folder of the model."""
        return Path(self.model.artifact_location.removeprefix("file://"))

    def translate(self, lines: list[str], **settings: Any) -> list[str]:
        """The translations that the model should answer with."""
        return Translator(self.checkpoint.folder, DecodingSettings(**settings)).translate(lines)


def _keep(tracker: Tracker, training: str, checkpoint: Checkpoint) -> str:
    """Keeps a model with the run of a training, and returns the run's id."""
    run: str = tracker.open({"aiayn.training": training}, "EN-DE base 1.0", {}).info.run_id
    models.keep(tracker.client, tracker.experiment_id, run, checkpoint, "pipeline.export.mlflow_model")
    return run


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A model logged by a tracker with a SQLite store."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = make_checkpoint(folder / "checkpoint", make_corpus(folder / "corpus"))
    checkpoint.write_json(MANIFEST, {"fingerprint": "c1"})
    tracker = Tracker(f"sqlite:///{folder}/mlflow.db", "table2", folder)
    run = _keep(tracker, "t1", checkpoint)
    (model,) = tracker.client.search_logged_models([tracker.experiment_id])
    return Kept(checkpoint, tracker, run, model)


def test_model_stands_under_its_run(kept: Kept) -> None:
    """The run is its source and lists it; it is ready and named after the run, without characters MLflow refuses."""
    outputs = kept.tracker.client.get_run(kept.run).outputs.model_outputs
    assert [output.model_id for output in outputs] == [kept.model.model_id]
    assert kept.model.source_run_id == kept.run
    assert kept.model.name == "EN-DE base 1-0"
    assert kept.model.status == "READY"
    assert not list(kept.folder.rglob("*.pkl"))


def test_model_is_kept_once(kept: Kept) -> None:
    """Repeating the command adds nothing; another workflow with the same training refers to the same model."""
    again = Tracker(kept.tracker.uri, "table2", kept.folder)
    assert _keep(again, "t1", kept.checkpoint) == kept.run
    other = _keep(again, "t2", kept.checkpoint)
    client = again.client
    assert other != kept.run
    for run in (kept.run, other):
        assert [output.model_id for output in client.get_run(run).outputs.model_outputs] == [kept.model.model_id]
    assert len(client.search_logged_models([again.experiment_id])) == 1


def test_loaded_model_translates_as_the_translator(kept: Kept) -> None:
    """It takes lists, data frames, blank lines and parameters; wrong ones are refused in one line."""
    import pandas
    from mlflow import pyfunc
    from mlflow.exceptions import MlflowException

    path = sys.path.copy()
    try:
        loaded = pyfunc.load_model(str(kept.folder))
        assert loaded.predict(SENTENCES) == kept.translate(SENTENCES)
        frame = pandas.DataFrame({"sentence": SENTENCES})
        params = {"beam_size": 1, "length_penalty": 1.0, "max_extra_tokens": 3}
        assert loaded.predict(frame, params=params) == kept.translate(SENTENCES, **params)
        assert loaded.predict(loaded.input_example) == kept.translate(loaded.input_example)
        with pytest.raises(MlflowException, match="beam_size: Input should be greater") as refused:
            loaded.predict(["A dog ."], params={"beam_size": 0})
        assert refused.value.get_http_status_code() == 400
        with pytest.raises(MlflowException, match="must be a string"):
            loaded.predict(pandas.DataFrame({"sentence": ["A dog .", None]}))
    finally:
        sys.path[:] = path  # MLflow added the model's code to it


def test_a_failure_leaves_no_ready_model(kept: Kept, tmp_path: Path) -> None:
    """After a missing file the unfinished model is marked as failed, and made at the next attempt."""
    gone = Checkpoint(tmp_path / "gone")
    shutil.copytree(kept.checkpoint.folder, gone.folder)
    gone.write_json(MANIFEST, {"fingerprint": "c2"})
    weights = gone.folder / "model.safetensors"
    weights.rename(tmp_path / "weights")
    weights.symlink_to(tmp_path / "nowhere")  # copying fails halfway
    tracker = Tracker(kept.tracker.uri, "failing", kept.folder)
    with pytest.raises(OSError, match=r"model\.safetensors"):
        _keep(tracker, "t1", gone)
    assert [model.status for model in tracker.client.search_logged_models([tracker.experiment_id])] == ["FAILED"]
    weights.unlink()
    (tmp_path / "weights").rename(weights)
    run = _keep(tracker, "t1", gone)
    (output,) = tracker.client.get_run(run).outputs.model_outputs
    assert tracker.client.get_logged_model(output.model_id).status == "READY"


@pytest.fixture
def address(kept: Kept, tmp_path: Path) -> Iterator[str]:
    """`mlflow models serve` on a free local port, without access to the project; stopped afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    moved = tmp_path / "model"
    shutil.copytree(kept.folder, moved)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])  # uvicorn's
    command = [sys.executable, "-P", "-m", "mlflow", "models", "serve", "-m", str(moved), "--env-manager", "local"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + STARTS_S
        while True:
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline_s, (tmp_path / "log").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def ask(address: str, question: dict[str, Any]) -> Any:
    """Sends a JSON request and returns the server's answer."""
    request = urllib.request.Request(address, json.dumps(question).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_served_model_answers(kept: Kept, address: str) -> None:
    """A list, one with parameters and a data frame get the Translator's translations; a bad request gets 400."""
    lines = ["Two dogs run .", "", "A dog ."]
    assert ask(address, {"inputs": lines}) == {"predictions": kept.translate(lines)}
    assert ask(address, {"inputs": lines, "params": {"beam_size": 2}}) == {
        "predictions": kept.translate(lines, beam_size=2)
    }
    frame = {"columns": ["sentence"], "data": [[line] for line in lines]}
    assert ask(address, {"dataframe_split": frame}) == {"predictions": kept.translate(lines)}
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(address, {"inputs": lines, "params": {"beam_size": 0}})
    assert refused.value.code == 400
    assert "beam_size" in json.load(refused.value)["message"]
