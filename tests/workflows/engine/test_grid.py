"""The grid's trainings through Ray Tune: real Ray, real trainings, small."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifacts import TrainingRun
from workflows import stages
from workflows.engine.dag import Step
from workflows.engine.events import Watcher
from workflows.engine.grid import Trial, _tunes_own, asha, run_grid
from workflows.engine.runner import run
from workflows.profiles import load_profile
from workflows.reproduce_table3 import trials_of
from workflows.tables.table3_rows import GridRow, varied

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
    """Kills the processes of Tune's trials at an update of a training, once."""

    def __init__(self, label: str, update: int) -> None:
        self._label, self._update, self.killed = label, update, False

    def event(self, step: Step, event: dict[str, Any]) -> None:
        if step.label == self._label and event.get("step", 0) >= self._update and not self.killed:
            self.killed = True
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if process.joinpath("cmdline").read_bytes().startswith((b"ray::_run_trial", b"ray::ImplicitFunc")):
                        os.kill(int(process.name), signal.SIGKILL)


def _trials(**rows: dict[str, Any]) -> list[Trial]:
    text = stages.prepared(PROFILE, "en-de")
    chosen = [GridRow(name, difference, varied(BASE, name, difference), None) for name, difference in rows.items()]
    return [one.trial for one in trials_of(text, chosen, 1, PROFILE.decoding)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the prepared text."""
    folder: Path = tmp_path_factory.mktemp("grid") / "store"
    text = stages.prepared(PROFILE, "en-de")
    run([text.corpus, text.dataset], folder)
    return folder


def test_a_killed_trial_goes_on_from_its_checkpoint(store: Path) -> None:
    """Tune's own process killed by SIGKILL at update 4: tried again, the curve has each update once."""
    (trial,) = _trials(F3={"d_ff": 48})
    killer = Killer("train en-de F3", 4)
    assert run_grid([trial], store, [killer], layout=BASE) == {}
    assert killer.killed
    run = TrainingRun(trial.training.folder(store))
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [line["update"] for line in lines if "dev_perplexity" in line] == [2, 4, 6, 8]


def test_asha_stops_the_worse_of_two(store: Path) -> None:
    """A row that hardly learns is stopped, stays so with the scheduler, and is trained to its end without.

    Its updates take longer, so the better one is at each rung first and there to be compared with.
    """
    longer = {"updates": 40, "validation_updates": 4}
    trials = _trials(F4={**longer, "warmup_steps": 20}, F5={**longer, "learning_rate_scale": 1e-9, "d_ff": 4096})
    unfinished = run_grid(trials, store, layout=BASE, scheduler=asha(40, 4))
    assert unfinished["F5"].state == "stopped"
    assert "by the scheduler after update" in unfinished["F5"].reason
    assert "F4" not in unfinished
    assert run_grid(trials, store, layout=BASE, scheduler=asha(40, 4)) == unfinished
    assert run_grid(trials, store, layout=BASE) == {}


def test_tunes_folders_of_dead_drivers_go_and_of_living_ones_stay(tmp_path: Path) -> None:
    """Two drivers have a folder each; what one that was killed has left goes when the next begins."""
    (tmp_path / ".tune-here-1-dead" / "grid").mkdir(parents=True)
    with _tunes_own(tmp_path) as first:
        first.mkdir()
        with _tunes_own(tmp_path) as second:
            second.mkdir()
            assert sorted(tmp_path.glob(".tune-*")) == sorted([first, second])
        assert [*tmp_path.glob(".tune-*")] == [first]
    assert [path.name for path in tmp_path.rglob("*")] == [".locks", "guard"]
