"""`aiayn runs` and `aiayn compare`: tables are found by manifests, what differs is named once; mistakes in a line."""

from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.experiments import EXPERIMENTS
from tests.support.tiny_dag import run_table, table_of
from workflows.cli.runs import TABLES, Pair, Run, chosen, compare, runs_in
from workflows.names import begin_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two finished runs."""
    made = Store(tmp_path / "runs")
    run_table(made, 1)
    run_table(made, 2)
    return made


def test_runs_are_listed(store: Store, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with the options of their commands and their folders in the store."""
    monkeypatch.setenv("COLUMNS", "120")
    done = command_line.in_process("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("table2/")]
    assert {tuple(row[-3:-1]) for row in rows} == {("--seed", "1"), ("--seed", "2")}
    listed = {(row[0], row[-1]) for row in rows}
    assert listed == {(f"table2/embedded/{seed}", table_of(seed).name) for seed in (1, 2)}


def test_every_experiment_is_listed_with_its_figures() -> None:
    """The part of a run's name that says which experiment it is leads to the figures of its page."""
    assert sorted(f"reproduce_{name}" for name in TABLES) == EXPERIMENTS


def test_mistakes_are_one_line(store: Store, tmp_path: Path, command_line: CommandLine) -> None:
    """A run or a folder that is not there, a model of a wrong name; a folder without runs is no mistake."""
    root = str(store.root)
    for arguments, message in (
        (["compare", "embedded/9", "--store", root], "there is no run embedded/9 here; there are table2/embedded/"),
        (["runs", "--store", str(tmp_path / "none")], "none: there is no such folder; python -m"),
        (["compare", "--store", str(tmp_path / "none")], "none: there is no such folder; python -m"),
        (["translate", f"{root}/table2/embedded/en-de-bas"], "en-de-bas is not a folder; name a folder that `aiayn"),
        (["average", f"{root}/table2/embedded/x", "--out", str(tmp_path / "out")], "in a run's folder trainings"),
        (["export", "ctranslate2", f"{root}/table2/x", "--out", str(tmp_path / "out")], "in a run's folder models"),
    ):
        done = command_line.here("workflows.cli", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    assert "no tables in" in command_line.here("workflows.cli", "runs", "--store", str(tmp_path / "none")).stdout


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two finished runs that differ in a seed, one of another profile and the same seed; another has only begun."""
    store = Store(tmp_path)
    run_table(store, 1)
    run_table(store, 2)
    run_table(store, 1, "multi30k")
    begin_run(store, "table2", "embedded", table_of(4))
    return runs_in(store)


def test_tables_that_are_made_are_listed(runs: list[Run], tmp_path: Path) -> None:
    """Each with its folder in the store."""
    assert {run.name for run in runs} == {"table2/embedded/1", "table2/embedded/2", "table2/multi30k/1"}
    assert {run.folder for run in runs} == {tmp_path / "store" / table_of(seed).name for seed in (1, 2)}
    assert runs_in(Store(tmp_path / "none")) == []


def test_each_difference_is_named_once(runs: list[Run]) -> None:
    """With the figures that were measured on the way; the same table beside itself differs in nothing."""
    by_name = {run.name: run for run in runs}
    first, second, other = (by_name[f"table2/{name}"] for name in ("embedded/1", "embedded/2", "multi30k/1"))
    compared = compare(first, second)
    assert compared.settings == (Pair("scoring.seed", 1, 2), Pair("training.seed", 1, 2))
    assert compared.lonely == ((), ())
    assert compared.figures == (Pair("score en-de base test.bleu", 81.5, 82.5),)
    assert compare(first, other).settings == ()


def test_which_runs_are_compared(runs: list[Run]) -> None:
    """Without names the last two, the older one first; a name may lack its beginning, and stands for the newest."""
    times = {"table2/embedded/1": 10, "table2/embedded/2": 12, "table2/multi30k/1": 11}
    made = {run.name: {"started": f"2026-11-24T{times[run.name]}:00:00+00:00", "seconds": 1.5} for run in runs}
    first, other, second = (
        Run(name, runs[0].store, runs[0].folder, made[name]) for name in sorted(times, key=lambda name: times[name])
    )
    listed = [second, other, first]
    assert chosen(listed, None, None) == (other, second)
    assert chosen(listed, "table2/embedded/1", None) == (first, second)
    assert chosen(listed, "multi30k", "embedded/1") == (other, first)
    assert chosen(listed, "embedded/1", "table2") == (first, second)
    assert chosen(listed, "table2/embedded/newest", "table2/embedded/1/") == (second, first)
