"""pipeline.store.removal: folders leave a store at once, and locks are not taken meanwhile."""

import threading
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store import removal
from pipeline.store.store import LocalStore
from tests.support.lock_holder import lock_holder
from tests.support.tiny_dag import make_artifact


def test_folders_are_distinguished(tmp_path: Path) -> None:
    """Artifacts, what is being made, workspaces, what was set aside; a user's folder and links are none of these."""
    store = LocalStore(tmp_path)
    assert removal.published(store) == removal.half_made(store) == removal.leftovers(store) == []
    make_artifact(store, "cleaning-1", {"text": "12345"})
    for name in (".making-training-1", ".tune-host-1", ".deleted-a-1", ".locks", "mine", "records"):
        store.folder(name).mkdir()
    store.folder("linked-1").symlink_to(store.folder("cleaning-1"))
    assert removal.published(store) == ["cleaning-1"]
    assert removal.half_made(store) == [".making-training-1", ".tune-host-1"]
    assert [removal.lock_name(name) for name in removal.half_made(store)] == ["training-1", ".tune-host-1"]
    assert removal.leftovers(store) == [".deleted-a-1"]


def test_locks_wait_and_their_owners_are_known(tmp_path: Path) -> None:
    """A lock is taken once the body has ended, and its owner is listed as long as its process lives."""
    store = LocalStore(tmp_path)
    taken = threading.Event()

    def take() -> None:
        with store.lock("training-1", "train") as lock:
            lock.take()
            taken.set()

    thread = threading.Thread(target=take)
    with removal.locks_closed(store):
        thread.start()
        assert not taken.wait(0.5)
    assert taken.wait(20)
    thread.join()
    with lock_holder(store.folder("training-2")) as holder:
        assert {name: owner.pid for name, owner in removal.owners(store).items()} == {"training-2": holder.pid}
        holder.kill()
        holder.wait()
        assert removal.owners(store) == {}


def test_a_folder_goes_at_once(tmp_path: Path) -> None:
    """It is not found once it is set aside; a folder that another process has deleted is no error, one not there is."""
    store = LocalStore(tmp_path)
    folder = make_artifact(store, "cleaning-1", {"text": "12345"})
    manifest_bytes = (folder / "manifest.json").stat().st_size
    (folder / "link").symlink_to("/nowhere")
    assert removal.size_bytes(folder) == 5 + manifest_bytes + len("/nowhere")
    (aside,) = removal.set_aside(store, ["cleaning-1"])
    assert store.find("cleaning-1") is None
    assert removal.leftovers(store) == [aside.name]
    assert removal.set_aside(store, [aside.name]) == [aside]
    removal.delete([aside])
    removal.delete([aside])
    assert removal.leftovers(store) == []
    with pytest.raises(UserError, match="cleaning-1 cannot be renamed"):
        removal.set_aside(store, ["cleaning-1"])
