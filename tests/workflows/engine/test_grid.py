"""Training a grid with Ray Tune: real Ray and real, small trainings."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.ray_workers import workers_alive
from tests.support.tiny_stages import Words, WriteSettings, die_often, open_a_folder, write
from workflows import stages
from workflows.engine import tuning
from workflows.engine.dag import Stage, Step, to_step
from workflows.engine.grid import run_grid
from workflows.engine.runner import Watcher, run
from workflows.profiles.loading import load_profile
from workflows.tables.table3_rows import GridRow, varied
from workflows.trials import RowTrial, trials_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

PROFILE = load_profile(
    overrides=[
        "corpora.en-de.train_pairs=600",
        "corpora.en-de.dev_pairs=20",
        "corpora.en-de.test_pairs=20",
        "vocabulary.size=300",
        "grid.training.updates=8",
        "grid.training.checkpoint_updates=2",
        "grid.training.validation_updates=2",
        "grid.training.model.d_model=32",
        "grid.training.model.d_ff=64",
        "grid.training.model.n_layers=1",
    ]
)
BASE = PROFILE.grid.training


class Killer(Watcher):
    """Kills the processes of Tune's trials once, at a given update of a training."""

    def __init__(self, label: str, update: int) -> None:
        self._label, self._update, self.killed = label, update, False

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        if step.label == self._label and event.get("step", 0) >= self._update and not self.killed:
            self.killed = True
            for pid in workers_alive("_run_trial", "ImplicitFunc"):
                os.kill(pid, signal.SIGKILL)


def _trials(**rows: dict[str, Any]) -> list[RowTrial]:
    text = stages.prepared(PROFILE, "en-de")
    chosen = [GridRow(name, difference, varied(BASE, name, difference)) for name, difference in rows.items()]
    return trials_of(text, chosen, 1, PROFILE.decoding)


def _models(trials: list[RowTrial]) -> dict[str, tuple[Step[Any], ...]]:
    return {trial.name: trial.evaluation.results for trial in trials}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the prepared text."""
    store = Store(tmp_path_factory.mktemp("grid"))
    text = stages.prepared(PROFILE, "en-de")
    run([text.corpus, text.dataset], store)
    return store


def test_a_lost_process_is_tried_again_and_a_mistake_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage whose process dies as often as Ray starts it again fails in a line, or is tried again by Tune."""
    dying, mistaken, store = tmp_path / "dying", tmp_path / "mistaken", Store(tmp_path / "runs")
    models = {
        "dying": [Stage("tiny_stages.die_often", die_often, Words)("die", dying, 8)],
        "mistaken": [Stage("tiny_stages.open_a_folder", open_a_folder, Words)("open", mistaken)],
        "sound": [Stage("tiny_stages.write", write, Words)("write", WriteSettings(text="a"))],
    }
    monkeypatch.setattr(tuning, "RETRIES", 0)
    failures = run_grid(models, store, layout=BASE)
    assert failures.keys() == {"dying", "mistaken"}
    assert re.fullmatch(r"Ray lost a process or a node \(.*\); finished work is kept: .*", failures["dying"])
    monkeypatch.undo()
    assert run_grid(models, store, layout=BASE) == {"mistaken": f"[Errno 21] Is a directory: '{tmp_path}'"}
    assert len(dying.read_text().splitlines()) == 9
    assert len(mistaken.read_text().splitlines()) == 2


def test_a_killed_trial_continues_from_its_checkpoint(store: Store) -> None:
    """After Tune's process gets a SIGKILL at update 4, the trial is retried and its curve has each update once."""
    trials = _trials(F3={"d_ff": 48})
    killer = Killer("train en-de F3", 4)
    assert run_grid(_models(trials), store, [killer], layout=BASE) == {}
    assert killer.killed
    run = to_step(trials[0].evaluation.training).published(store)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [line["update"] for line in lines if "dev_perplexity" in line] == [2, 4, 6, 8]
