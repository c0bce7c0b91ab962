"""`aiayn clean` as its users see it."""

import shutil
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.command_line import CommandLine
from tests.support.lock_holder import lock_holder
from tests.support.tiny_dag import listing, make, run_table, table_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, and what a third made without a record."""
    store = LocalStore(tmp_path_factory.mktemp("made"))
    run_table(store, 1)
    run_table(store, 2)
    make(store, table_of(9))
    return store.root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> LocalStore:
    """A copy of these runs, which all links stay within."""
    return LocalStore(shutil.copytree(made, tmp_path / "runs", symlinks=True))


def test_a_list_first_and_yes_deletes_it(store: LocalStore, command_line: CommandLine) -> None:
    """Without --yes nothing changes; the second time there is nothing left, and each option has its own."""
    root, before = str(store.root), listing(store.root)
    told = command_line.here("workflows.cli", "clean", "--keep-last", "1", "--store", root)
    assert told.returncode == 0
    rows = [line.split() for line in told.stdout.splitlines()]
    assert [table_of(1).name, "table", "2", "table2/embedded/1"] in [row[:4] for row in rows]
    assert ["table2/embedded/1/", "names", "and", "records"] in [row[:4] for row in rows]
    assert "would free " in told.stdout
    assert told.stdout.endswith(": folders: 3, runs: 1; --yes deletes them\n")
    assert listing(store.root) == before
    for option in (["--keep-last", "1"], ["--unused"]):
        done = command_line.here("workflows.cli", "clean", *option, "--yes", "--store", root)
        assert done.returncode == 0
        assert "freed " in done.stdout
        again = command_line.here("workflows.cli", "clean", *option, "--yes", "--store", root)
        assert (again.returncode, again.stdout) == (0, f"nothing to delete in {root}\n")
    assert store.find(table_of(2).name)
    assert not store.find(table_of(9).name)


def test_the_sizes_are_those_of_the_files(store: LocalStore, command_line: CommandLine) -> None:
    """The total is what the folders' files have."""
    (store.folder(table_of(9).name) / "report.html").write_bytes(b"x" * 2_500_000)
    told = command_line.here("workflows.cli", "clean", "--unused", "--store", str(store.root))
    assert told.stdout.count("2.5 MB") == 2  # in its row, and in all


def test_mistakes_are_one_line(store: LocalStore, tmp_path: Path, command_line: CommandLine) -> None:
    """Neither option or both, none to keep, no store, somebody who is making something; nothing is changed."""
    root, before = ["--store", str(store.root)], listing(store.root)
    with lock_holder(store.folder("heads-0000000000000001")):
        for arguments, message in (
            ([*root], "name one of --keep-last N and --unused"),
            (["--unused", "--keep-last", "1", *root], "name one of --keep-last N and --unused"),
            (["--keep-last", "0", *root], "--keep-last"),
            (["--unused", "--store", str(tmp_path / "none")], "there is no store here"),
            (["--unused", "--yes", *root], "is making train here, and no record says from what"),
        ):
            done = command_line.here("workflows.cli", "clean", *arguments)
            assert done.returncode == 2, arguments
            assert message in done.stderr
            assert done.stderr.count("\n") == 1
        told = command_line.here("workflows.cli", "clean", "--unused", *root)
        assert "\nnot now: pid " in told.stdout
    assert listing(store.root) == before
    assert not (tmp_path / "none").exists()
