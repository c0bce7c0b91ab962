"""When MLflow need not be told: only if its file is as it was left after it was told the same."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from workflows.tracking.settled import is_settled, settle

TOLD = ["f1", {"beam_size": 4}, Path("corpus")]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store beside which MLflow's file would be."""
    return LocalStore(tmp_path)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a SQLite file with a table of one row."""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        with connection:
            connection.execute("CREATE TABLE runs (stage TEXT)")
            connection.execute("INSERT INTO runs VALUES ('active')")
        yield connection


def uri(store: LocalStore) -> str:
    """The address of the file."""
    return f"sqlite:///{store.root}/mlflow.db"


@pytest.mark.usefixtures("connection")
def test_the_same_again_is_settled(store: LocalStore) -> None:
    """It is not settled before it was told, nor where anything else is to be told."""
    assert not is_settled(uri(store), store, TOLD)
    settle(uri(store), store, TOLD)
    assert is_settled(uri(store), store, TOLD)
    assert not is_settled(uri(store), store, ["f1", {"beam_size": 1}, Path("corpus")])


def test_a_changed_row_is_told_again(store: LocalStore, connection: sqlite3.Connection) -> None:
    """A change that keeps the file's size is seen, and reading changes nothing."""
    settle(uri(store), store, TOLD)
    with closing(sqlite3.connect(store.root / "mlflow.db")) as reader:
        assert reader.execute("SELECT stage FROM runs").fetchall() == [("active",)]
    assert is_settled(uri(store), store, TOLD)
    size_bytes = (store.root / "mlflow.db").stat().st_size
    with connection:
        connection.execute("UPDATE runs SET stage = 'passed'")
    assert (store.root / "mlflow.db").stat().st_size == size_bytes
    assert not is_settled(uri(store), store, TOLD)


def test_a_file_that_is_being_changed_is_asked(store: LocalStore, connection: sqlite3.Connection) -> None:
    """Neither is it settled during a transaction, nor remembered in the state that it has then."""
    settle(uri(store), store, TOLD)
    connection.execute("UPDATE runs SET stage = 'passed'")
    assert not is_settled(uri(store), store, TOLD)
    settle(uri(store), store, TOLD[:1])
    connection.rollback()
    assert not is_settled(uri(store), store, TOLD[:1])


@pytest.mark.usefixtures("connection")
def test_another_file_or_none_is_asked(store: LocalStore) -> None:
    """A file that was removed or put in the other's place does not count, and a server never does."""
    settle(uri(store), store, TOLD)
    database = store.root / "mlflow.db"
    status = database.stat()
    copy = store.root / "copy.db"
    copy.write_bytes(database.read_bytes())
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(copy, database)
    assert not is_settled(uri(store), store, TOLD)
    database.unlink()
    assert not is_settled(uri(store), store, TOLD)
    settle("http://localhost:5000", store, TOLD)
    assert not is_settled("http://localhost:5000", store, TOLD)
