"""MLflow on a real SQLite store: runs are found again, nothing is sent twice, statuses and artifacts are right."""

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import mlflow.data
import pytest

from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import Input, Tracker, flatten


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose SQLite store is made only once, since creating its schema takes seconds."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def uri(runs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default tracking address."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return default_uri(runs)


LINES = [{"update": n, "epoch": 1, "loss": 5 - n / 100, "train_s": n / 10} for n in range(1, 301)]


def test_second_run_continues_and_sends_nothing_twice(runs: Path, uri: str) -> None:
    """After half a curve, a kill and then the whole file there is one parent and one child, with each point once."""
    first = Tracker(uri, "table2", runs)
    parent = first.workflow("f1", "table2 embedded", {"profile": "embedded"}, {"git": "abc"})
    child = first.model("t1", "EN-DE base", {"model": {"d_k": 64, "d_v": 64}}, {"aiayn.corpus": "c1"})
    for line in LINES[:150]:
        first.metrics("t1", line, line["update"], time.time())
    first.end("KILLED")

    second = Tracker(uri, "table2", runs)
    assert second.workflow("f1", "table2 embedded", {"profile": "embedded"}) == parent
    assert second.model("t1", "EN-DE base", {}) == child
    assert second._client.get_run(parent).info.status == "RUNNING"
    second.curves("t1", LINES, ended=time.time())
    for score in (20.0, 20.0, 27.3):
        second.results("t1", {"paper_bleu.newstest2014": score})
    second.end_model("t1")
    second.end()

    client = second._client
    run = client.get_run(child)
    assert run.data.params == {"model.d_k": "64", "model.d_v": "64"}
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.data.tags["aiayn.training"] == "t1"
    assert run.data.tags["aiayn.corpus"] == "c1"
    assert sorted(point.step for point in client.get_metric_history(child, "loss")) == [n["update"] for n in LINES]
    assert [p.value for p in client.get_metric_history(child, "paper_bleu.newstest2014")] == [20.0, 27.3]
    assert {client.get_run(name).info.status for name in (parent, child)} == {"FINISHED"}
    assert len(client.search_runs([second._experiment_id])) == 2


def test_cached_training_under_a_new_workflow_gets_its_curves(runs: Path, uri: str) -> None:
    """Another workflow with the same training has its own child run, with the figures and times from the file."""
    tracker = Tracker(uri, "other table", runs)
    tracker.workflow("f2", "beam 8", {})
    child = tracker.model("t1", "EN-DE base", {})
    tracker.curves("t1", LINES, ended=1_000_000.0)
    tracker.end()
    points = tracker._client.get_metric_history(child, "loss")
    assert len(points) == len(LINES)
    assert max(point.timestamp for point in points) == 1_000_000_000
    assert points[0].timestamp == 1_000_000_000 - 29_900


def test_long_curves_are_sent_in_several_requests(runs: Path, uri: str) -> None:
    """All figures arrive even if there are more than MLflow accepts at once."""
    tracker = Tracker(uri, "long", runs)
    tracker.workflow("f3", "long", {f"p{n}": n for n in range(250)})
    child = tracker.model("t3", "long", {})
    tracker.curves("t3", [{"update": n, "loss": 1.0, "train_s": 0.0} for n in range(2500)], ended=1.0)
    with sqlite3.connect(runs / "mlflow.db") as database:
        sent = database.execute("select count(*) from metrics where run_uuid = ? and key = 'loss'", (child,)).fetchone()
    assert sent == (2500,)
    tracker.end("FAILED")
    assert tracker._client.get_run(child).info.status == "FAILED"


def test_inputs_are_shown_as_datasets_once(runs: Path, uri: str, tmp_path: Path) -> None:
    """MLflow's Dataset column has the text and the vocabulary, each once, and leads to their folders."""
    inputs = [
        Input("multi30k en-de", "0123456789abcdef", tmp_path, "training"),
        Input("multi30k en-de vocabulary", "fedcba9876543210", tmp_path, "vocabulary"),
    ]
    for _ in range(2):
        tracker = Tracker(uri, "inputs", runs)
        tracker.workflow("f6", "inputs", {}, inputs=inputs)
        child = tracker.model("t6", "EN-DE base", {}, inputs=inputs)
        tracker.end()
    logged = tracker._client.get_run(child).inputs.dataset_inputs
    shown = {
        (one.dataset.name, one.dataset.digest, {tag.key: tag.value for tag in one.tags}["mlflow.data.context"])
        for one in logged
    }
    assert len(logged) == 2
    assert shown == {(given.name, given.fingerprint, given.context) for given in inputs}
    assert Path(mlflow.data.get_source(logged[0]).load()) == tmp_path


def test_a_run_found_again_gets_what_it_lacks(runs: Path, uri: str) -> None:
    """Parameters that a killed command did not send are added, tags replaced, points sent once, passwords never."""
    mirror = {"corpus": {"mirrors": ["https://me:secret@mirror/"], "train_pairs": 600}}
    first = Tracker(uri, "lacking", runs)
    first.workflow("f7", "lacking", {})
    child = first.model("t7", "EN-DE base", {"decoding": {"beam_size": 4}}, {"commit": "a"})
    second = Tracker(uri, "lacking", runs)
    second.workflow("f7", "lacking", {})
    assert second.model("t7", "EN-DE base", {"decoding": {"beam_size": 4}, **mirror}, {"commit": "b"}) == child
    second.series("t7", "dev_sacrebleu", {3: 10.0, 6: 12.5})
    second.series("t7", "dev_sacrebleu", {3: 10.0, 6: 12.5, 9: 13.0})
    second.tags("t7", {"used.dtype": "float32"})
    second.tags("t7", {"used.dtype": "bfloat16"})
    second.end()
    points = second._client.get_metric_history(child, "dev_sacrebleu")
    assert [(point.step, point.value) for point in points] == [(3, 10.0), (6, 12.5), (9, 13.0)]
    run = second._client.get_run(child)
    assert run.data.params == {
        "decoding.beam_size": "4",
        "corpus.mirrors": "['https://mirror/']",
        "corpus.train_pairs": "600",
    }
    assert {name: run.data.tags[name] for name in ("commit", "used.dtype")} == {
        "commit": "b",
        "used.dtype": "bfloat16",
    }


def test_artifacts_are_kept_with_the_runs_and_sent_once(runs: Path, uri: str, tmp_path: Path) -> None:
    """Files and figures of the workflow can be read, and are sent again only when they change."""
    (tmp_path / "table2.md").write_text("first", encoding="utf-8")
    tracker = Tracker(uri, "artifacts", runs)
    parent = tracker.workflow("f4", "artifacts", {})
    tracker.model("t4", "EN-DE base", {})
    tracker.text("t4", "a translation", "samples.md")
    for text, fingerprint in (("first", "x"), ("second", "x"), ("third", "y")):
        (tmp_path / "table2.md").write_text(text, encoding="utf-8")
        tracker.artifacts(tmp_path, fingerprint)
        if fingerprint == "x":
            assert [file.read_text() for file in (runs / "mlartifacts" / parent).rglob("table2.md")] == ["first"]
    assert [file.read_text() for file in (runs / "mlartifacts" / parent).rglob("table2.md")] == ["third"]
    assert [file.read_text() for file in (runs / "mlartifacts").rglob("samples.md")] == ["a translation"]
    tracker.artifacts(tmp_path, "z", into="text")
    assert (runs / "mlartifacts" / parent / "artifacts" / "text" / "table2.md").read_text() == "third"
    for padding in (0.04, 0.04, 0.05):
        tracker.results("", {"padding_fraction.en-de": padding})
    points = tracker._client.get_metric_history(parent, "padding_fraction.en-de")
    assert [point.value for point in points] == [0.04, 0.05]


def test_flatten() -> None:
    """Nested settings become dotted names."""
    assert flatten({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}


@pytest.mark.slow
def test_two_commands_open_a_new_store_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even after a command was killed while making the tables, both find the same runs, each made once."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    script = (
        "import sys; from pathlib import Path; from workflows.tracking.tracker import Tracker\n"
        "from workflows.tracking.addresses import default_uri\n"
        "runs = Path(sys.argv[1]); tracker = Tracker(default_uri(runs), 'table2', runs)\n"
        "print(tracker.workflow('w', 'workflow', {}), tracker.model('t', 'training', {}))\n"
        "tracker.metrics('t', {'loss': 1.0}, 1, 0.0); tracker.end()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    killed = subprocess.Popen(command)
    while not (tmp_path / ".making-mlflow.db").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert printed[0] == printed[1]
    assert len(printed[0].split()) == 2
    assert not (tmp_path / ".making-mlflow.db").exists()
