"""pipeline.store.store: workspaces next to artifacts, and names that are a user's folders."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store


def _write(folder: Path) -> Artifact:
    (folder / "text.txt").write_text("a")
    return Artifact(folder)


def test_an_absolute_name_is_a_users_own_folder(tmp_path: Path) -> None:
    """Single stages publish to any folder of their user, outside the store."""
    store, mine = Store(tmp_path / "runs"), tmp_path / "mine"
    assert store.publish(str(mine), _write, {}, holds_lock=lambda: True).folder == mine
    assert store.find(str(mine)) == mine
    assert not (tmp_path / "runs").exists()


def test_workspaces_of_dead_processes_are_removed_and_those_of_live_ones_kept(tmp_path: Path) -> None:
    """Each driver has its own workspace. A killed driver's workspace is removed when the next driver starts."""
    store = Store(tmp_path)
    (store.artifacts / ".tune-here-1-dead" / "grid").mkdir(parents=True)
    with store.workspace("tune") as first:
        first.mkdir()
        with store.workspace("tune") as second:
            second.mkdir()
            assert sorted(store.artifacts.glob(".tune-*")) == sorted([first, second])
        assert [*store.artifacts.glob(".tune-*")] == [first]
    assert [path.name for path in store.artifacts.rglob("*")] == [".locks", "guard"]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("gs://bucket/runs", "begins with s3:// or file:// and names one"),
        ("az://bucket/runs", "begins with s3:// or file:// and names one"),
        ("s3://", "begins with s3:// or file:// and names one"),
        ("s3:/bucket/runs", "a URI has two slashes; write s3://bucket/runs, or ./s3:/bucket/runs"),
        ("", "name a folder"),
    ],
)
def test_what_is_no_store_is_one_line(where: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^--store .*{message}$"):
        Store.at(where)
