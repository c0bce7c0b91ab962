"""Training a grid with Ray Tune: real Ray and real, small trainings."""

import json
import os
import signal
from typing import Any

import pytest

from pipeline.store.artifact import Artifact
from pipeline.store.store import LocalStore
from tests.support.ray_workers import workers_alive
from workflows import stages
from workflows.engine.dag import Step
from workflows.engine.events import Watcher
from workflows.engine.grid import Asha, Trial
from workflows.engine.runner import run, run_grid
from workflows.profiles import load_profile
from workflows.tables.table3_rows import GridRow, varied
from workflows.trials import trials_of

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


class Ends(Watcher):
    """Notes the trainings given up while Tune is at work."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []
        self._is_over = False

    def given_up(self, step: Step[Artifact], state: str) -> None:
        assert not self._is_over
        self.given.append((step.label, state))

    def end(self, error: BaseException | None) -> None:
        self._is_over = True


def _trials(**rows: dict[str, Any]) -> list[Trial]:
    text = stages.prepared(PROFILE, "en-de")
    chosen = [GridRow(name, difference, varied(BASE, name, difference), None) for name, difference in rows.items()]
    return [one.trial for one in trials_of(text, chosen, 1, PROFILE.decoding)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """A store with the prepared text."""
    store = LocalStore(tmp_path_factory.mktemp("grid"))
    text = stages.prepared(PROFILE, "en-de")
    run([text.corpus, text.dataset], store)
    return store


def test_a_killed_trial_continues_from_its_checkpoint(store: LocalStore) -> None:
    """After Tune's process gets a SIGKILL at update 4, the trial is retried and its curve has each update once."""
    (trial,) = _trials(F3={"d_ff": 48})
    killer = Killer("train en-de F3", 4)
    assert run_grid([trial], store, [killer], layout=BASE) == {}
    assert killer.killed
    run = trial.training.published(store)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [line["update"] for line in lines if "dev_perplexity" in line] == [2, 4, 6, 8]


def test_asha_stops_the_worse_of_two(store: LocalStore) -> None:
    """A row that hardly learns is stopped, stays stopped with the scheduler, and is trained to the end without it.

    Its updates take longer, so the better row reaches each rung first and can be compared with.
    """
    longer = {"updates": 40, "validation_updates": 4}
    trials = _trials(F4={**longer, "warmup_steps": 20}, F5={**longer, "learning_rate_scale": 1e-9, "d_ff": 4096})
    ends = Ends()
    unfinished = run_grid(trials, store, [ends], layout=BASE, scheduler=Asha(40, 4))
    assert unfinished["F5"].state == "stopped"
    assert ends.given == [("train en-de F5", "stopped")]
    assert "by the scheduler after update" in unfinished["F5"].reason
    assert "F4" not in unfinished
    assert run_grid(trials, store, layout=BASE, scheduler=Asha(40, 4)) == unfinished
    assert run_grid(trials, store, layout=BASE) == {}
