"""MLflow on a real SQLite store: runs are found again, nothing is sent twice, statuses are correct."""

import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import MEASURED_TAG, PARENT_TAG, WORKFLOW_TAG, Status, Tracker


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose SQLite store is created once, since its schema takes seconds."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def uri(runs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default tracking address."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return default_uri(runs)


LINES = [{"update": n, "epoch": 1, "loss": 5 - n / 100, "train_s": n / 10} for n in range(1, 301)]


def _opened(uri: str, runs: Path, experiment: str, params: dict[str, Any] | None = None) -> tuple[Tracker, str]:
    """A tracker, and the id of a workflow's run."""
    tracker = Tracker(uri, experiment, runs)
    return tracker, tracker.open({WORKFLOW_TAG: "w"}, "workflow", params or {}).info.run_id


def _steps(tracker: Tracker, run: str, name: str) -> list[int]:
    return sorted(point.step for point in tracker.client.get_metric_history(run, name))


def test_a_second_command_continues_and_sends_nothing_twice(runs: Path, uri: str) -> None:
    """After half a curve, a kill and the whole file, there is one run, with each point once."""
    first, run = _opened(uri, runs, "table2", {"profile": "embedded"})
    first.curves(run, LINES[:100], time.time())
    first.curves(run, LINES[:150], time.time())
    first.end(run, "KILLED")

    second, again = _opened(uri, runs, "table2", {"profile": "another"})
    assert again == run
    assert second.client.get_run(run).info.status == "RUNNING"
    second.curves(run, LINES, time.time())
    for score in (20.0, 20.0, 27.3):
        second.results(run, {"paper_bleu.newstest2014": score}, {"dev_sacrebleu": {3: 10.0}})
    second.results(run, {}, {"dev_sacrebleu": {3: 10.0, 6: 12.5}})
    second.end(run, "FINISHED", "w")
    second.end(run, "FAILED")
    assert second.has_all({"w"})
    assert not second.has_all({"w", "another"})
    ended = second.client.get_run(run)
    assert ended.data.params == {"profile": "embedded"}
    assert ended.info.status == "FINISHED"
    assert _steps(second, run, "loss") == [line["update"] for line in LINES]
    assert _steps(second, run, "dev_sacrebleu") == [3, 6]
    points = second.client.get_metric_history(run, "paper_bleu.newstest2014")
    assert [point.value for point in points] == [20.0, 27.3]
    assert len(second.runs({WORKFLOW_TAG: "w"})) == 1


def test_a_model_is_shown_below_the_newest_table(runs: Path, uri: str) -> None:
    """A complete or abandoned model's run moves to the new parent. An active one stays."""
    tracker = Tracker(uri, "moving", runs)

    def child(measured: str, parent: Any, status: Status | None = None, n_lines: int = 0) -> str:
        name = f"{measured} of {parent.info.run_name}"
        run = str(tracker.open({MEASURED_TAG: measured}, name, {}, {}, parent).info.run_id)
        tracker.curves(run, LINES[:n_lines], time.time())
        if status:
            tracker.end(run, status, measured if status == "FINISHED" else "")
        return run

    first, second, third = (tracker.open({WORKFLOW_TAG: name}, name, {}) for name in ("first", "second", "third"))
    whole, half, live = child("whole", first, "FINISHED", 20), child("half", first, "KILLED", 10), child("live", first)

    assert child("live", first) == live  # left by a killed command, which continues it
    assert child("whole", second) == whole
    assert child("half", second, None, 20) == half
    other = child("live", second)
    assert other != live
    below = {run.info.run_id: run for run in tracker.runs({PARENT_TAG: second.info.run_id})}
    assert {run: each.info.run_name for run, each in below.items()} == {
        whole: "whole of second",
        half: "half of second",
        other: "live of second",
    }
    assert below[half].info.status == "RUNNING"
    assert _steps(tracker, half, "loss") == _steps(tracker, whole, "loss") == [line["update"] for line in LINES[:20]]
    assert [run.info.run_id for run in tracker.runs({PARENT_TAG: first.info.run_id})] == [live]

    tracker.end(third.info.run_id, "FINISHED", "third")
    (complete,) = tracker.runs({WORKFLOW_TAG: "third"})
    assert child("whole", complete) == whole  # a complete table adopts none
    assert len(tracker.runs({PARENT_TAG: second.info.run_id})) == 3


def test_runs_below_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database and MLflow's other files are in that folder, and nothing is beside it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "wh?at #1 per%20cent 50 % 'ü' \"d@t\" [bold]"
    folder.mkdir()
    tracker, run = _opened(default_uri(folder), folder, "table2")
    tracker.client.log_text(run, "a text", "samples.txt")
    tracker.end(run, "FINISHED", "w")
    assert tracker.has_all({"w"})
    assert (folder / "mlflow.db").is_file()
    assert [path.read_text() for path in folder.rglob("samples.txt")] == ["a text"]
    assert [*tmp_path.iterdir()] == [folder]


def test_a_run_found_again_gets_what_it_lacks(runs: Path, uri: str) -> None:
    """Parameters missing after a kill are added, tags are replaced, passwords are never sent."""
    mirror = {"corpus": {"mirrors": ["https://me:secret@mirror/"], "train_pairs": 600}}
    for params, commit in (({}, "a"), (mirror, "b")):
        tracker = Tracker(uri, "lacking", runs)
        tracker.open({WORKFLOW_TAG: "w"}, "x", {"decoding": {"beam_size": 4}, **params}, {"commit": commit})
    (run,) = tracker.runs({WORKFLOW_TAG: "w"})
    assert run.data.params == {
        "decoding.beam_size": "4",
        "corpus.mirrors": "['https://mirror/']",
        "corpus.train_pairs": "600",
    }
    assert run.data.tags["commit"] == "b"


def test_a_damaged_file_is_reported_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy mentions the variable only if it is set."""
    (tmp_path / "mlflow.db").write_text("no database")
    for variable, remedy in (
        ("", "move the file elsewhere; a new one will be filled"),
        ("X", "correct or unset MLFLOW_TRACKING_URI"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable and f"sqlite:///{tmp_path}/mlflow.db")
        tracker = Tracker(default_uri(tmp_path), "table2", tmp_path)
        with pytest.raises(UserError, match=rf"mlflow\.db does not answer \(.*not a database\); {remedy}"):
            tracker.attempt(lambda: tracker.open({WORKFLOW_TAG: "w"}, "workflow", {}))  # noqa: B023
