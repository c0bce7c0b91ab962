"""pipeline.store.store on a real S3 server, seen from two machines, here two cache folders."""

import json
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.errors import BucketError, LockLostError, UserError
from pipeline.store import bucket as bucket_module
from pipeline.store import store as store_module
from pipeline.store.artifact import Artifact, _canonical_sha256
from pipeline.store.bucket import Bucket
from pipeline.store.build import Build
from pipeline.store.locks import Owner
from pipeline.store.store import Store
from tests.support.s3_server import FaultyProxy, S3Server, always, never
from tests.support.waiting import until

SPAWN = multiprocessing.get_context("spawn")


def _write(folder: Path) -> Artifact:
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "weights").write_bytes(os.urandom(300_000))
    (folder / "text.txt").write_text("a")
    return Artifact(folder)


def _publish(store: Store, name: str = "words-1") -> Artifact:
    return store.publish(name, _write, {"fingerprint": "1"}, holds_lock=lambda: True)


def _publish_at(root: Path, uri: str) -> None:
    _publish(Store(root, uri))


@pytest.fixture
def store(in_bucket: Store) -> Store:
    return in_bucket


def test_what_one_machine_publishes_another_pulls(store: Store, elsewhere: Store) -> None:
    assert elsewhere.find("words-1") is None
    published = _publish(store)
    marker = json.loads(store.bucket.read("store/words-1/published.json").data)
    store.bucket.write("store/words-1/published.json", json.dumps({**marker, "key of a later version": 1}).encode())
    assert published.folder == store.find("words-1") == store.root / "store" / "words-1"
    assert elsewhere.find("words-1") == elsewhere.root / "store" / "words-1"
    assert elsewhere.manifest("words-1") == published.manifest
    fetched = Artifact(elsewhere.fetch("words-1"))
    assert fetched.damage() is None
    assert fetched.manifest == published.manifest
    assert (fetched.folder / "text.txt").stat().st_ino == (elsewhere.fetch("words-1") / "text.txt").stat().st_ino
    (fetched.folder / "text.txt").write_text("damaged")
    assert (elsewhere.fetch("words-1") / "text.txt").read_text() == "a"
    assert elsewhere.damage("words-1") is None
    objects = store.bucket.sizes_bytes("store/words-1")
    elsewhere.set_aside("words-1")
    assert elsewhere.find("words-1") is None
    with pytest.raises(UserError, match="no longer there"):
        store.fetch("words-1")
    assert store.find("words-1") is None
    del objects["published.json"]
    assert store.bucket.sizes_bytes("store/words-1") == objects
    assert store.mirror.orphans() == {}  # perhaps the last copy
    (copy,) = elsewhere.artifacts.glob(".aside-words-1-*")
    assert Artifact(copy).damage() is None
    _publish(store)
    assert Artifact(elsewhere.fetch("words-1")).damage() is None
    assert [*store.mirror.orphans().values()] == [sum(objects.values())]


def test_who_has_lost_the_lock_neither_keeps_nor_removes(store: Store, elsewhere: Store) -> None:
    with store.lock("training-1", "train") as lock:
        assert lock.take() is None
        ours = pickle.loads(pickle.dumps(Build.of(store, "training-1", lock)))
        with ours.opened() as folder:
            (folder / "metrics.jsonl").write_text("ours\n")
            ours.keep("metrics.jsonl")
            store.bucket.write("store/.locks/training-1.json", Owner("far", 1, "train", time.time()).written())
            store.bucket.write("store/.making-training-1/metrics.jsonl", b"theirs")
            for act in (ours.keep, ours.drop, lambda part: ours.set_aside([part])):
                with pytest.raises(LockLostError, match=r"^another command has taken over .* went silent"):
                    act("metrics.jsonl")
        assert not lock.is_ours()
    assert store.bucket.read("store/.making-training-1/metrics.jsonl").data == b"theirs"


def test_files_stay_in_doubt(store: Store, elsewhere: Store, at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the publishing write loses its answer and its retry fails, the artifact is there and complete."""
    monkeypatch.setattr(bucket_module, "PATIENCE_S", 1.0)
    with FaultyProxy(at_s3) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)

        def is_lost(request: str) -> bool:
            if is_last := request.startswith("PUT") and "published.json" in request:
                proxy.refuses = always
            return is_last

        proxy.loses = is_lost
        with pytest.raises(BucketError):
            _publish(Store(store.root, store.uri))
    assert proxy.n_failed
    assert elsewhere.find("words-1")
    assert elsewhere.damage("words-1") is None
    assert Artifact(elsewhere.fetch("words-1")).damage() is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files downloaded so far."""
    names, download = list[str](), Bucket.download

    def recording(bucket: Bucket, files: Mapping[str, Path]) -> None:
        names.extend(name.rpartition("/")[2] for name in files)
        download(bucket, files)

    monkeypatch.setattr(Bucket, "download", recording)
    return names


def test_who_shows_an_artifact_pulls_its_small_files(
    store: Store, elsewhere: Store, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no copy: who computes with the artifact gets all of it, and after that they are not needed."""
    monkeypatch.setattr(store_module, "RECORDS_BYTES", 100_000)
    published = _publish(store)
    for _ in range(2):
        records = Artifact(elsewhere.fetch("words-1", records=True))
        assert records.manifest == published.manifest
        assert (records.folder / "text.txt").read_text() == "a"
    assert asked == ["manifest.json", "text.txt"]
    assert not elsewhere.folder("words-1").exists()
    build = Build.of(store, "other-1")
    build.store = elsewhere
    for path in ("", "checkpoints", "checkpoints/weights"):
        assert build.input(published.folder / path) == elsewhere.folder("words-1") / path
    assert (asked[2], sorted(asked[3:])) == ("manifest.json", ["text.txt", "weights"])
    assert Artifact(elsewhere.folder("words-1")).damage() is None
    assert elsewhere.fetch("words-1", records=True) == elsewhere.folder("words-1")
    assert build.input(of_a_user := elsewhere.root / "model") == of_a_user


def test_processes_of_one_machine_pull_an_artifact_once(store: Store, elsewhere: Store, asked: list[str]) -> None:
    _publish(store)
    with ThreadPoolExecutor() as threads:
        folders = {*threads.map(lambda _: elsewhere.fetch("words-1"), range(4))}
    assert folders == {elsewhere.folder("words-1")}
    assert sorted(asked) == ["manifest.json", "text.txt", "weights"]


def test_an_interrupted_pull_goes_on(store: Store, elsewhere: Store, at_s3: S3Server, asked: list[str]) -> None:
    """What has arrived intact stays; what a cut line left of a file does not count."""
    _publish(store)
    with FaultyProxy(at_s3) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_module, "PATIENCE_S", 0.5)
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        for file, act in (("manifest.json", elsewhere.manifest), ("weights", elsewhere.fetch)):
            proxy.refuses = lambda request: request.startswith("GET") and file in request  # noqa: B023
            with pytest.raises(BucketError, match=rf"cannot read .*{file}"):
                act("words-1")
    assert not elsewhere.folder("words-1").exists()
    asked.clear()
    assert Artifact(elsewhere.fetch("words-1")).damage(again=True) is None
    assert asked == ["weights"]
    assert {path.name for path in elsewhere.artifacts.iterdir()} == {".locks", ".verified", "words-1"}


def test_a_missing_object_is_damage_and_a_changed_one_is_not_used(store: Store, elsewhere: Store) -> None:
    """Missing objects and wrong sizes show in the bucket's list, other damage when they arrive."""
    _publish(store)
    (attempt,) = store.bucket.folders("store/words-1")
    place = f"store/words-1/{attempt}"
    store.bucket.write(f"{place}/text.txt", b"b")
    assert elsewhere.damage("words-1") is None
    with pytest.raises(UserError, match=r"is damaged: text\.txt does not match its sha256"):
        elsewhere.fetch("words-1")
    assert not elsewhere.folder("words-1").exists()
    store.bucket.write(f"{place}/text.txt", b"longer")
    assert elsewhere.damage("words-1") == "text.txt has 6 bytes, not the 1 that were published"
    store.bucket.remove([f"{place}/text.txt"])
    assert elsewhere.damage("words-1") == "text.txt is missing"
    store.bucket.remove([f"{place}/manifest.json"])
    assert elsewhere.damage("words-1") == "manifest.json is missing"


@pytest.mark.parametrize("name", ["/{}", "../{}", "checkpoints/../../{}", ".{}", "checkpoints//{}", "a\n{}", "."])
def test_a_name_from_the_bucket_leads_nowhere_else(store: Store, elsewhere: Store, tmp_path: Path, name: str) -> None:
    """Whoever can write to a bucket chooses no other files or folders of the machines that read it."""
    _publish(store)
    evil = name.format(f"{tmp_path}/home/evil.pth")
    published = json.loads(store.bucket.read("store/words-1/published.json").data)
    place = f"store/words-1/{published['attempt']}/manifest.json"
    manifest = json.loads(store.bucket.read(place).data)
    manifest["files"][evil] = {"bytes": 2, "sha256": "0" * 64}
    del manifest["sha256"]
    published["sha256"] = manifest["sha256"] = _canonical_sha256(manifest)
    store.bucket.write(place, json.dumps(manifest).encode())
    store.bucket.write("store/words-1/published.json", json.dumps(published).encode())
    with pytest.raises(UserError, match=r"is damaged: manifest\.json is broken, or not the published one; restore"):
        elsewhere.fetch("words-1")
    store.bucket.write("store/words-1/published.json", json.dumps({**published, "attempt": evil}).encode())
    with pytest.raises(UserError, match=r"/published\.json is broken \(.*names no file below a folder .*; move it"):
        elsewhere.fetch("words-1")
    with pytest.raises(BucketError, match=r"cannot read a/.*run the same command again$"):
        store.bucket.download({f"a/{evil}": tmp_path / "home" / "a"})
    assert not (tmp_path / "home").exists()
    assert [*elsewhere.artifacts.glob("[!.]*")] == []
    store.bucket.write("store/.making-training-1/.netrc", b"theirs")
    with pytest.raises(BucketError, match=r"making-training-1: '\.netrc' names no file .*; remove that object"):
        Build.of(elsewhere, "training-1").opened().__enter__()


def test_a_killed_push_has_published_nothing_and_is_done_again(store: Store, elsewhere: Store, at_s3: S3Server) -> None:
    with FaultyProxy(at_s3) as proxy, pytest.MonkeyPatch.context() as patch:
        proxy.refuses = lambda request: request.startswith("PUT") and "weights" in request
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        writer = SPAWN.Process(target=_publish_at, args=(store.root, store.uri))
        writer.start()
        until(lambda: proxy.n_failed and any("text.txt" in name for name in store.bucket.sizes_bytes("store")), 60)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert store.find("words-1") is None
    (attempt,) = store.bucket.folders("store/words-1")
    manifest = Artifact(store.folder("words-1")).manifest
    assert not elsewhere.push_left("words-1")
    assert store.push_left("words-1")
    assert [*store.mirror.orphans()] == [f"store/words-1/{attempt}"]
    assert store.damage("words-1") is None
    assert Artifact(elsewhere.fetch("words-1")).manifest == manifest


def test_checkpoints_travel(store: Store, elsewhere: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = Build.of(store, "training-1")
    stage.folder.mkdir(parents=True)
    worker = pickle.loads(pickle.dumps(stage))
    worker.store = elsewhere
    with worker.opened() as folder:
        assert folder != stage.folder
        for update in (5, 10, 15):
            (folder / "checkpoints" / f"{update}").mkdir(parents=True)
            (folder / "checkpoints" / f"{update}" / "model").write_text(str(update))
            (folder / "checkpoints" / f"{update}" / "manifest.json").write_text(f"of {update}")
            (folder / "metrics.jsonl").write_text("line\n" * update)
            worker.keep("metrics.jsonl")
            worker.keep(f"checkpoints/{update}")
        worker.drop("checkpoints/5")
        successor = pickle.loads(pickle.dumps(stage))
        successor.store = Store(tmp_path / "third machine", store.uri)
        with successor.opened() as third:
            assert third != folder
            assert sorted(path.name for path in (third / "checkpoints").iterdir()) == ["10", "15"]
    assert not folder.exists()
    for earlier in ("1", "10"):
        (stage.folder / "checkpoints" / earlier).mkdir(parents=True)
        (stage.folder / "checkpoints" / earlier / "model").write_text("of an earlier try")
        (stage.folder / "checkpoints" / earlier / "manifest.json").write_text("of it")
    store.bucket.write("store/.making-training-1/checkpoints/20/model", b"of a killed worker")
    stage.collect()
    assert "checkpoints/20, which is incomplete" in caplog.text
    assert {path.name: (path / "model").read_text() for path in (stage.folder / "checkpoints").iterdir()} == {
        "10": "10",
        "15": "15",
    }
    assert (stage.folder / "metrics.jsonl").read_text() == "line\n" * 15
    stage.folder.rename(tmp_path / "elsewhere")
    _publish(store, "training-1")
    assert store.bucket.sizes_bytes("store/.making-training-1") == {}


def test_what_could_not_be_kept_is_kept_later(
    store: Store, at_s3: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training continues with a warning while the service is down, and the next checkpoint uploads the missed files."""
    monkeypatch.setattr(bucket_module, "PATIENCE_S", 0.5)
    build = Build.of(store, "training-1")
    with FaultyProxy(at_s3) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        with build.opened() as folder:
            proxy.refuses = always
            for name in ("a", "b"):
                (folder / name).write_text(name)
                build.keep(name)
            assert caplog.text.count("is only on this machine") == 2
            proxy.refuses = never
            (folder / "c").write_text("c")
            build.keep("c")
            assert Bucket(store.uri).sizes_bytes("store/.making-training-1") == {"a": 1, "b": 1, "c": 1}
            proxy.refuses = always
            build.keep("c")
            proxy.refuses = never
