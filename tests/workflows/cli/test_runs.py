"""`aiayn runs` finds tables by their manifests. Errors are one line."""

from pathlib import Path

import pytest

from pipeline.store.artifact import MANIFEST
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import run_table, table_of
from workflows.cli.runs import runs_in
from workflows.names import begin_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two finished runs."""
    made = Store(tmp_path / "runs")
    run_table(made, 1)
    run_table(made, 2)
    return made


def test_runs_are_listed(store: Store, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with their commands' options and their folders in the store."""
    monkeypatch.setenv("COLUMNS", "120")
    done = command_line.in_process("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("table2/")]
    assert {tuple(row[-3:-1]) for row in rows} == {("--seed", "1"), ("--seed", "2")}
    listed = {(row[0], row[-1]) for row in rows}
    assert listed == {(f"table2/embedded/{seed}", table_of(seed).name) for seed in (1, 2)}


def test_mistakes_are_one_line(store: Store, tmp_path: Path, command_line: CommandLine) -> None:
    """A missing run or folder, or a model's wrong name. A folder without runs is not an error."""
    root = str(store.root)
    for arguments, message in (
        (["runs", "--store", str(tmp_path / "none")], "none: no such folder; python -m"),
        (
            ["translate", f"{root}/table2/embedded/en-de-bas"],
            "en-de-bas is not a folder; name a folder written by `aiayn",
        ),
        (["average", f"{root}/table2/embedded/x", "--out", str(tmp_path / "out")], "an entry of a run's trainings"),
        (["export", "ctranslate2", f"{root}/table2/x", "--out", str(tmp_path / "out")], "an entry of a run's models/"),
    ):
        done = command_line.here("workflows.cli", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    assert "no tables in" in command_line.here("workflows.cli", "runs", "--store", str(tmp_path / "none")).stdout


def test_a_damaged_manifest_is_one_line(store: Store, command_line: CommandLine) -> None:
    """The other run is listed. `aiayn runs` does not fail, since a rerun of the run's command mends it."""
    manifest = store.root / "table2" / "embedded" / "1" / MANIFEST
    manifest.write_text(manifest.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    done = command_line.here("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    assert "table2/embedded/2" in done.stdout
    assert "table2/embedded/1" not in done.stdout
    assert "table2/embedded/1: left out, since" in done.stderr
    assert done.stderr.count("\n") == 1


def test_tables_that_are_made_are_listed(tmp_path: Path) -> None:
    """Each with its folder in the store, of any profile. An unfinished run is not listed."""
    store = Store(tmp_path)
    assert runs_in(store) == []
    for seed, profile in ((1, "embedded"), (2, "embedded"), (1, "multi30k")):
        run_table(store, seed, profile)
    begin_run(store, "table2", "embedded", table_of(4))
    listed = {run.name: run.folder for run in runs_in(store)}
    folders = {seed: tmp_path / "store" / table_of(seed).name for seed in (1, 2)}
    assert listed == {"table2/embedded/1": folders[1], "table2/embedded/2": folders[2], "table2/multi30k/1": folders[1]}
