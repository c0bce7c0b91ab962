"""workflows.cli.runs: tables are found by manifests; what differs is named once, figures stand side by side."""

from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.tiny_dag import TABULATE, make, run_table, table_of
from workflows.cli.runs import Pair, Run, chosen, compare, runs_in
from workflows.command_line import CommandLine
from workflows.engine.dag import in_order
from workflows.names import begin_run, finish_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two finished runs that differ in a seed, one of another profile and the same seed; another has only begun."""
    store = LocalStore(tmp_path)
    run_table(store, 1)
    run_table(store, 2)
    run_table(store, 1, "multi30k")
    begin_run(store, "table2", "embedded", table_of(4))
    return runs_in(store)


def test_tables_that_are_made_are_listed(runs: list[Run], tmp_path: Path) -> None:
    """Each with its folder in the store."""
    assert {run.name for run in runs} == {"table2/embedded/1", "table2/embedded/2", "table2/multi30k/1"}
    assert {run.folder for run in runs} == {tmp_path / "store" / table_of(seed).name for seed in (1, 2)}
    assert runs_in(LocalStore(tmp_path / "none")) == []


def test_each_difference_is_named_once(runs: list[Run]) -> None:
    """With the figures that were measured on the way; the same table beside itself differs in nothing."""
    by_name = {run.name: run for run in runs}
    first, second, other = (by_name[f"table2/{name}"] for name in ("embedded/1", "embedded/2", "multi30k/1"))
    compared = compare(first, second)
    assert compared.settings == (Pair("scoring.seed", 1, 2), Pair("training.seed", 1, 2))
    assert compared.lonely == ((), ())
    assert compared.figures == (Pair("score en-de base test.bleu", 81.5, 82.5),)
    assert compare(first, other).settings == ()


def test_stages_that_only_one_run_has(tmp_path: Path) -> None:
    """They are named, and another version of a library is told apart."""
    store = LocalStore(tmp_path)
    run_table(store, 1)
    brief = TABULATE("table 2", in_order([table_of(1)])[0], CommandLine(typed="brief"))
    run = begin_run(store, "table2", "embedded", brief)
    make(store, brief)
    finish_run(store, run, brief, brief.published(store))
    first, second = (run for run in sorted(runs_in(store), key=lambda run: run.name))
    assert compare(first, second).lonely == (("average en-de base", "score en-de base", "train en-de base"), ())
    newer = Run(first.name, first.store, first.folder, {**first.manifest, "libraries": {"torch": "2.12"}})
    assert compare(first, newer).settings == (Pair("torch", "2.11", "2.12"),)


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
