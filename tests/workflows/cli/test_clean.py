"""`aiayn clean` as its users see it."""

import shutil
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.command_line import CommandLine
from tests.support.lock_holder import lock_holder
from tests.support.tiny_dag import listing, run_table, table_of


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Two finished runs, of which the first has been given up."""
    made = LocalStore(tmp_path / "runs")
    shutil.rmtree(run_table(made, 1))
    run_table(made, 2)
    return made


def test_a_list_first_and_yes_deletes_it(store: LocalStore, command_line: CommandLine) -> None:
    """Without --yes nothing changes; the sizes are those of the files; the second time there is nothing left."""
    (store.folder(table_of(1).name) / "report.html").write_bytes(b"x" * 2_500_000)
    root, before = str(store.root), listing(store.root)
    told = command_line.here("workflows.cli", "clean", "--store", root)
    assert told.returncode == 0
    rows = [line.split() for line in told.stdout.splitlines()]
    assert [table_of(1).name, "table", "2"] in [row[:3] for row in rows]
    assert told.stdout.endswith("would free 2.5 MB in 4 folders; --yes deletes them\n")
    assert listing(store.root) == before
    done = command_line.here("workflows.cli", "clean", "--yes", "--store", root)
    assert done.returncode == 0
    assert done.stdout.endswith("\nfreed 2.5 MB in 4 folders\n")
    again = command_line.here("workflows.cli", "clean", "--yes", "--store", root)
    assert (again.returncode, again.stdout) == (0, f"nothing to delete in {root}\n")
    assert store.find(table_of(2).name)
    assert not store.find(table_of(1).name)


def test_mistakes_are_one_line(store: LocalStore, tmp_path: Path, command_line: CommandLine) -> None:
    """No store, somebody who is making something; nothing is changed."""
    root, before = ["--store", str(store.root)], listing(store.root)
    with lock_holder(store.folder("heads-0000000000000001")):
        for arguments, message in (
            (["--store", str(tmp_path / "none")], "there is no store here"),
            (root, "is making train here, and no run says from what"),
            (["--yes", *root], "is making train here, and no run says from what"),
        ):
            done = command_line.here("workflows.cli", "clean", *arguments)
            assert done.returncode == 2, arguments
            assert message in done.stderr
            assert done.stderr.count("\n") == 1
    assert listing(store.root) == before
    assert not (tmp_path / "none").exists()
