"""pipeline.store.removal: locks are not taken while folders leave a store."""

import threading
from pathlib import Path

from pipeline.store import removal
from pipeline.store.store import Store
from tests.support.lock_holder import lock_holder


def test_locks_wait_and_their_owners_are_known(tmp_path: Path) -> None:
    """A lock is taken only after the body, and its owner is listed as long as its process lives."""
    store = Store(tmp_path)
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
