import os
import pickle
import threading
from functools import partial
from pathlib import Path

import pytest

from pipeline.errors import BucketError, LockLostError, UserError
from pipeline.store import removal
from pipeline.store.artifact import Artifact, build_folder, publish
from pipeline.store.build import Build
from pipeline.store.folders import forgetful_mount
from pipeline.store.locks import guarded
from pipeline.store.store import Store
from tests.support.lock_holder import lock_holder
from tests.support.s3_server import S3Server


def _write(folder: Path) -> Artifact:
    (folder / "text.txt").write_text("a")
    return Artifact(folder)


def _publish(store: Store, name: str = "words-1") -> Artifact:
    return store.publish(name, _write, {}, holds_lock=lambda: True)


def test_a_damaged_artifact_is_found_set_aside_and_made_again(store: Store) -> None:
    assert store.find("words-1") is None
    assert _publish(store).folder == store.find("words-1") == store.folder("words-1")
    assert store.damage("words-1") is None
    assert store.peek("words-1", "text.txt") == "a"
    store.set_aside("words-1")
    assert store.find("words-1") is None
    assert len([*store.artifacts.glob(".aside-words-1-*/text.txt")]) == 1
    _publish(store)
    assert Artifact(store.fetch("words-1")).damage() is None


def test_a_client_of_nfs_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for its cache: what a look did not find stays missing until the folder above is opened."""
    store, missing = Store(tmp_path / "runs"), set[Path]()
    is_dir, open_ = Path.is_dir, os.open

    def cached(path: Path) -> bool:
        found = path not in missing and is_dir(path)
        missing.update(() if found else [path])
        return found

    def opened(path: Path, *arguments: int) -> int:
        missing.difference_update([*missing] if path == store.artifacts else ())
        return open_(path, *arguments)

    monkeypatch.setattr(Path, "is_dir", cached)
    assert store.find("words-1") is None
    store.folder("words-1").mkdir(parents=True)
    assert not store.folder("words-1").is_dir()
    missing.discard(store.artifacts)
    monkeypatch.setattr(os, "open", opened)
    assert store.find("words-1") == store.folder("words-1")


@pytest.mark.parametrize("options", ["rw,vers=4.2", "rw,lookupcache=pos,vers=4.2"])
def test_a_mount_of_nfs_that_remembers_is_told(tmp_path: Path, options: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/export {tmp_path} nfs4 {options} 0 0\n")
    assert forgetful_mount(tmp_path / "runs", mounts) == (None if "lookupcache" in options else str(tmp_path))
    assert forgetful_mount(Path("/"), mounts) is None


def test_a_damaged_artifact_may_become_its_build_folder_again(store: Store) -> None:
    _publish(store)
    store.reopen("words-1")
    assert store.find("words-1") is None
    assert store.peek("words-1", "text.txt") == "a"
    assert store.publish("words-1", Artifact, {}, resume=True, holds_lock=lambda: True).folder == store.find("words-1")


def test_a_node_that_has_just_started_checks_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks even if the clock of the node that pickled the folder and had just checked is hours ahead."""
    monkeypatch.setattr("time.monotonic", lambda: 9000.0)
    build = Build(Path("training-1"), is_ours=partial(bool, 1))
    build.check(every_s=5)
    build.is_ours = partial(bool, 0)
    build.check(every_s=5)
    monkeypatch.setattr("time.monotonic", lambda: 2.0)
    with pytest.raises(LockLostError):
        pickle.loads(pickle.dumps(build)).check(every_s=5)


def test_workspaces_of_dead_processes_are_removed_and_those_of_live_ones_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (store.artifacts / ".tune-here-1-dead" / "grid").mkdir(parents=True)
    with store.workspace("tune") as first:
        first.mkdir()
        with store.workspace("tune") as second:
            second.mkdir()
            assert sorted(store.artifacts.glob(".tune-*")) == sorted([first, second])
        assert [*store.artifacts.glob(".tune-*")] == [first]
    assert [path.name for path in store.artifacts.rglob("*")] == [".locks", "guard"]


def test_locks_wait_and_their_owners_are_known(tmp_path: Path) -> None:
    store, taken = Store(tmp_path), threading.Event()

    def take() -> None:
        with store.lock("training-1", "train") as lock:
            lock.take()
            taken.set()

    thread = threading.Thread(target=take)
    with guarded(store.artifacts / ".locks"):
        thread.start()
        assert not taken.wait(0.2)
    assert taken.wait(20)
    thread.join()
    with lock_holder(store.folder("training-2")) as holder:
        assert {name: owner.pid for name, owner in removal.owners(store).items()} == {"training-2": holder.pid}
        holder.kill()
        holder.wait()
        assert removal.owners(store) == {}


def test_a_store_is_named_by_a_folder_or_a_uri(at_s3: S3Server, tmp_path: Path) -> None:
    assert Store.at("~nobody-here/runs").root == Path("~nobody-here/runs").absolute()
    assert Store.at(tmp_path) == Store.at(str(tmp_path)) == Store.at(f"file://{tmp_path}") == Store(tmp_path)
    odd = tmp_path / "wh?at #1 per%20cent"
    assert Store.at(odd.as_uri()) == Store.at(odd) == Store(odd)
    uri = at_s3.bucket()
    assert str(Store.at(f"{uri}/runs/").checked()) == f"{uri}/runs"
    with pytest.raises(BucketError, match="s3://no-such-bucket"):
        Store.at("s3://no-such-bucket/runs").checked()


def test_a_leftover_that_cannot_be_deleted_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    build_folder(tmp_path / "a").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"/\.making-a cannot be deleted \(.*symbolic link.*; end the process"):
        publish(tmp_path / "a", Artifact, {})
    assert (tmp_path / "mine").is_dir()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        *((f"{scheme}://bucket/runs", "begins with s3:// or file:// and names one") for scheme in ("gs", "az", "ftp")),
        ("s3://", "begins with s3:// or file:// and names one"),
        ("s3:/bucket/runs", "a URI has two slashes; write s3://bucket/runs, or ./s3:/bucket/runs"),
        ("", "name a folder"),
        ("s3://KEY:SECRET@bucket/x", r"s3://\.\.\.@\.\.\.: leave out the credentials; set them in the environment"),
    ],
)
def test_what_is_no_store_is_one_line(where: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^--store .*{message}$"):
        Store.at(where)
