"""The runner, on a real Ray cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_stages import Pair, Words, WriteSettings, join, write

from pipeline.artifacts import Artifact
from pipeline.errors import UserError
from workflows import runner
from workflows.dag import Stage, Step
from workflows.watching import Watcher

WRITE, JOIN = Stage(write, Words), Stage(join, Words)


class Log(Watcher):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def started(self, step: Step) -> None:
        self.told.append(("started", step.label))

    def event(self, step: Step, event: dict[str, Any]) -> None:
        self.told.append((event["unit"], step.label))

    def finished(self, step: Step, artifact: Artifact) -> None:
        self.told.append(("finished", step.label))


def _joined(log: Path, right: str = "b") -> Step:
    left, right_step = WRITE("left", WriteSettings(text="a")), WRITE("right", WriteSettings(text=right))
    return JOIN("join", [Pair(left, right_step), Pair(left)], log)


@pytest.mark.usefixtures("ray_cluster")
def test_a_dag_runs_once_and_reruns_only_what_changed(tmp_path: Path) -> None:
    """Outputs are right and published with a manifest; a second call runs nothing; a change reruns what follows it."""
    store, log = tmp_path / "store", tmp_path / "log"
    watcher = Log()
    (words,) = runner.run([_joined(log)], store, [watcher])
    assert isinstance(words, Words)
    assert words.text == "a b a [1, 1, 1]"
    assert ("texts", "left") in watcher.told
    assert watcher.told[-1] == ("finished", "join")
    manifest = json.loads((words.folder / "manifest.json").read_text())
    assert manifest["inputs"].keys() == {"left", "right"}
    assert manifest["files"]["words.txt"]["bytes"] == len(words.text)
    assert not (store / ".making").exists()

    runner.run([_joined(log)], store)
    assert log.read_text() == "joined\n"

    watcher = Log()
    (words,) = runner.run([_joined(log, right="cc")], store, [watcher])
    assert words.text == "a cc a [1, 2, 1]"  # type: ignore[attr-defined]
    assert ("started", "left") not in watcher.told
    assert ("started", "right") in watcher.told


@pytest.mark.usefixtures("ray_cluster")
def test_a_users_error_arrives_as_one_line_and_nothing_is_half_written(tmp_path: Path) -> None:
    """The error of a stage on a Ray worker reaches the caller as it was raised."""
    store = tmp_path / "store"
    with pytest.raises(UserError, match=r"^the text is bad; write another$"):
        runner.run([_joined(tmp_path / "log", right="bad")], store)
    bad = _joined(tmp_path / "log", right="bad")
    assert not bad.folder(store).exists()
    assert not bad.inputs[1].folder(store).exists()
    assert not (tmp_path / "log").exists()
