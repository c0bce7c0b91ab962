"""Building the models of a table, with and without Ray Tune: real Ray and small real runs."""

import io
import json
import os
import re
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support import tiny_stages
from tests.support.ray_workers import workers_alive
from tests.support.tiny_profile import TEXT, overrides, training
from tests.support.tiny_stages import JOIN, LINGER, WRITE, Pair, Words, WriteSettings
from workflows import stages
from workflows.engine import schedule
from workflows.engine.dag import Stage, Step
from workflows.engine.interface import Model, Watcher
from workflows.engine.progress import View
from workflows.engine.runner import run, run_models
from workflows.profiles.loading import load_profile
from workflows.reproduce_table3 import trials_of
from workflows.tables.measured import Cell
from workflows.tables.table3_rows import GridRow, varied

pytestmark = pytest.mark.usefixtures("ray_cluster")
TUNED = pytest.param(True, marks=pytest.mark.slow)

PROFILE = load_profile(overrides=overrides({**TEXT, **training("grid", 8, checkpoints=4, validations=4)}))
BASE = PROFILE.grid.training
BAD = "the text is bad; write another"


class Killer(Watcher):
    """Kills the processes of Tune's trials, or training workers, once, at a given update."""

    def __init__(self, label: str, update: int) -> None:
        self._label, self._update, self.killed = label, update, False

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        if step.label == self._label and event.get("step", 0) >= self._update and not self.killed:
            self.killed = True
            for pid in workers_alive("_run_trial", "ImplicitFunc"):
                os.kill(pid, signal.SIGKILL)


def _trials(**rows: dict[str, Any]) -> dict[str, Cell]:
    text = stages.prepared(PROFILE, "en-de")
    chosen = [GridRow(name, difference, varied(BASE, name, difference)) for name, difference in rows.items()]
    return trials_of(text, chosen, 1, PROFILE.decoding)


class Log(Watcher):
    def __init__(self) -> None:
        self.begun: list[list[str]] = []
        self.made: list[str] = []
        self.lost: list[list[str]] = []

    def begin(self, steps: Collection[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        self.begun.append([step.label for step in steps])

    def finished(self, step: Step[Artifact], summary: str) -> None:
        self.made.append(step.label)

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        self.lost.append([name, why, *(step.label for step in results)])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("grid"))
    text = stages.prepared(PROFILE, "en-de")
    run([text.corpus, text.dataset], store)
    return store


class Tiny:
    def __init__(self, log: Path, **results: Step[Any]) -> None:
        self._log, self.results = log, results

    def run(self, store: Store, tuned: bool, *watchers: Watcher) -> tuple[str, Mapping[str, str]]:
        models = {name: Model([step], BASE) for name, step in self.results.items()}
        table, failures = run_models(models, self.step, store, watchers, tuned=tuned)
        return table.text, failures

    def step(self, failures: Mapping[str, str]) -> Step[Words]:
        return JOIN("table", [Pair(step) for name, step in self.results.items() if name not in failures], self._log)


def _text(label: str, text: str) -> Step[Words]:
    return WRITE(label, WriteSettings(text=text))


@pytest.mark.parametrize("tuned", [False, TUNED])
def test_a_model_that_fails_leaves_a_hole(tmp_path: Path, tuned: bool) -> None:
    """The others are built, in one run with one count. The same call retries only failed ones."""
    store, log = Store(tmp_path / "runs"), Log()
    tiny = Tiny(tmp_path / "log", good=_text("good", "a"), bad=_text("bad", "bad"), other=_text("other", "b"))
    assert tiny.run(store, tuned, log) == ("a b [1, 1]", {"bad": BAD})
    assert log.begun == [["good", "bad", "other", "table"]]
    assert (sorted(log.made), log.lost) == (["good", "other", "table"], [["bad", BAD, "bad"]])
    again = Log()
    assert tiny.run(store, tuned, again) == ("a b [1, 1]", {"bad": BAD})
    assert (again.begun, again.made, again.lost) == ([["bad", "table"]], [], [["bad", BAD, "bad"]])


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "log", bad=_text("bad", "bad"))
    with pytest.raises(UserError, match=r"^bad failed: the text is bad"):
        tiny.run(Store(tmp_path / "runs"), False)


@pytest.mark.parametrize("tuned", [False, TUNED])
def test_nothing_is_trained_of_text_that_fails(tmp_path: Path, tuned: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """A model trains once its test set and its text's report are there; if one fails slowly, only the other model does.

    The test set is behind the scores. The report is the table's, and reads another set beside the model's text.
    """
    log, bad = tmp_path / "log", Stage("tiny_stages.fail_later", tiny_stages.fail_later, Words)("read test", 2.0)
    text, other = _text("text", "a"), _text("other text", "b")
    a, b, c = (_meeting(name, log, source) for name, source in (("a", text), ("b", text), ("c", other)))
    report = JOIN("report", [Pair(text, bad)], tmp_path / "report")
    scored = JOIN("score a", [Pair(bad, a)], tmp_path / "scored")
    made = {"a": Model([scored], BASE), "b": Model([b], BASE), "c": Model([c], BASE)}

    def table(failures: Mapping[str, str]) -> Step[Words]:
        left = [
            Pair(step, report if name == "b" else None) for name, step in (("b", b), ("c", c)) if name not in failures
        ]
        return JOIN("table", left, tmp_path / "joined")

    log.write_text("begins\n")  # so that one is enough
    _, failures = run_models(made, table, Store(tmp_path / "runs"), tuned=tuned)
    assert failures == dict.fromkeys("ab", BAD)
    assert log.read_text().split("\n") == ["begins", "begins c", "ends c", ""]
    assert "Trial" not in capfd.readouterr().out


def test_a_single_training_waits_for_the_test_sets_too(tmp_path: Path) -> None:
    bad = Stage("tiny_stages.fail_later", tiny_stages.fail_later, Words)("read test", 2.0)
    trained = _trained("m", tmp_path / "log", 8)
    with pytest.raises(UserError, match=BAD):
        run([JOIN("score m", [Pair(trained, bad)], tmp_path / "joined")], Store(tmp_path / "runs"))
    assert not (tmp_path / "log").exists()


def test_a_training_that_fits_nowhere_fails_alone(tmp_path: Path) -> None:
    """Two CPUs have no room for three workers. The other model is built."""
    wide = BASE.model_copy(update={"workers": 3, "budget_tokens": 900})
    steps = {"wide": _trained("wide", tmp_path / "log", 0), "good": _text("good", "a")}
    tiny = Tiny(tmp_path / "log", **steps)
    made = {"wide": Model([steps["wide"]], wide), "good": Model([steps["good"]], BASE)}
    table, failures = run_models(made, tiny.step, Store(tmp_path / "runs"))
    assert table.text == "a [1]"
    assert "3 training workers with 1 CPU each do not fit" in failures["wide"]


def _trained(label: str, log: Path, seconds: float) -> Step[Words]:
    return replace(LINGER, trains=True)(f"train {label}", label, seconds, log)


def _view() -> View:
    return View(Console(file=io.StringIO(), width=120))


def test_no_more_are_trained_at_once_than_fit(tmp_path: Path) -> None:
    log, wide = tmp_path / "log", BASE.model_copy(update={"workers": 2})
    steps = {name: _trained(name, log, 0.3) for name in ("a", "b", "c")}
    made = {name: Model([step], wide) for name, step in steps.items()}
    assert run_models(made, Tiny(tmp_path / "joined", **steps).step, Store(tmp_path / "runs"), [_view()])[1] == {}
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["begins", "ends"] * 3


def test_what_a_failed_model_was_making_is_cancelled(tmp_path: Path) -> None:
    log, began_s = tmp_path / "log", time.monotonic()
    long, short, good = _trained("long", log, 600), _trained("short", log, 3), _text("good", "a")
    bad = replace(WRITE, trains=True)("bad", WriteSettings(text="bad"))
    tiny = Tiny(tmp_path / "joined", short=short)
    made = {"failing": Model([long, bad, good], BASE), "short": Model([short, good], BASE)}
    table, failures = run_models(made, lambda _failures: tiny.step({}), Store(tmp_path / "runs"), [_view()])
    assert failures == {"failing": BAD}
    assert table.text.startswith("short")
    assert time.monotonic() - began_s < 200
    assert len([line for line in log.read_text().splitlines() if line.startswith("end")]) == 1


def _meeting(label: str, log: Path, *behind: Step[Words]) -> Step[Words]:
    return Stage("tiny_stages.meet", tiny_stages.meet, Words, trains=True)(f"train {label}", label, log, behind)


def test_the_models_with_the_most_work_begin_first(tmp_path: Path) -> None:
    """Two of three runs fit at once: the smallest begins last, although it was named first."""
    log = tmp_path / "log"
    steps = {name: _meeting(name, log) for name in ("small", "large", "larger")}
    updates = {"small": BASE.updates, "large": 9, "larger": 10}
    made = {name: Model([step], BASE.model_copy(update={"updates": updates[name]})) for name, step in steps.items()}
    assert run_models(made, Tiny(tmp_path / "joined", **steps).step, Store(tmp_path / "runs"), [_view()])[1] == {}
    assert [line for line in log.read_text().splitlines() if line.startswith("begins")][2] == "begins small"


def test_models_that_share_a_training_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """The third begins beside the first, not the second, which then uses the first one's run."""
    log = tmp_path / "log"
    one, other = _meeting("one", log), _meeting("other", log)
    again = JOIN("again", [Pair(one)], tmp_path / "again")
    made = {"one": Model([one], BASE), "again": Model([again], BASE), "other": Model([other], BASE)}
    tiny = Tiny(tmp_path / "joined", one=one, again=again, other=other)
    assert run_models(made, tiny.step, Store(tmp_path / "runs"), [_view()])[1] == {}
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["begins", "begins", "ends", "ends"]


@pytest.mark.parametrize("tuned", [False, TUNED])
def test_a_bug_of_a_stage_fails_at_once_and_its_traceback_is_kept(tmp_path: Path, tuned: bool) -> None:
    store, calls = Store(tmp_path / "runs"), tmp_path / "calls"
    buggy = Stage("tiny_stages.have_a_bug", tiny_stages.have_a_bug, Words)("bug", calls)
    _, failures = Tiny(tmp_path / "log", buggy=buggy, sound=_text("write", "a")).run(store, tuned)
    file = store.artifacts / f".error-{buggy.name}.txt"
    assert failures == {"buggy": f"KeyError: 'paper_bleu' (traceback: {file})"}
    assert 'raise KeyError("paper_bleu")' in file.read_text()
    assert calls.read_text() == "called\n"
    calls.write_text("mended")
    assert Tiny(tmp_path / "log", buggy=buggy).run(store, tuned)[1] == {}
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.parametrize("tuned", [False, True])
def test_lost_processes_are_retried_not_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned: bool) -> None:
    """A stage whose process dies as often as Ray restarts it fails in one line, or the model is retried."""
    dying, mistaken, store = tmp_path / "dying", tmp_path / "mistaken", Store(tmp_path / "runs")
    tiny = Tiny(
        tmp_path / "log",
        dying=Stage("tiny_stages.die_often", tiny_stages.die_often, Words)("die", dying, 8),
        mistaken=Stage("tiny_stages.open_a_folder", tiny_stages.open_a_folder, Words)("open", mistaken),
        sound=_text("write", "a"),
    )
    monkeypatch.setattr(schedule, "RETRIES", 0)
    _, failures = tiny.run(store, tuned)
    assert failures.keys() == {"dying", "mistaken"}
    assert re.fullmatch(r"Ray lost a process or a node \(.*\); finished work is kept: .*", failures["dying"])
    monkeypatch.undo()
    kept = f"(traceback: {store.artifacts}/.error-{tiny.results['mistaken'].name}.txt)"
    assert tiny.run(store, tuned)[1] == {"mistaken": f"[Errno 21] Is a directory {kept}: '{tmp_path}'"}
    assert len(dying.read_text().splitlines()) == 9
    assert len(mistaken.read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_killed_trial_continues_from_its_checkpoint(store: Store, tmp_path: Path) -> None:
    """After a SIGKILL of Tune's process at update 4, the trial is retried and its curve has each update once."""
    ((name, trial),) = _trials(F3={"d_ff": 48}).items()
    killer, trained = Killer("train en-de F3", 4), trial.training
    made = {name: Model(trial.results, BASE)}
    assert run_models(made, lambda _failures: trained, store, [killer], tuned=True)[1] == {}
    assert killer.killed
    run = trained.published(store)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    assert [line["update"] for line in lines if "dev_perplexity" in line] == [2, 4, 6, 8]
