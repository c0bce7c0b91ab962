import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store import artifact as module
from pipeline.store import hashes
from pipeline.store.artifact import Artifact
from pipeline.store.hashes import LARGE_BYTES, cached, hashes_file
from pipeline.store.store import Store

FILES = ("a", "part/b")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    hashed: Callable[[Path], str] = module.file_sha256

    def counting(path: Path) -> str:
        read.append(path.name)
        return hashed(path)

    for each in (module, hashes):
        monkeypatch.setattr(each, "file_sha256", counting)
    return read


@pytest.fixture
def published(tmp_path: Path, reads: list[str]) -> Artifact:

    def make(folder: Path) -> Artifact:
        (folder / "part").mkdir()
        for name in FILES:
            (folder / name).write_text("text")
        return Artifact(folder)

    artifact = Store(tmp_path).publish("words-1", make, {}, holds_lock=lambda: True)
    assert sorted(reads) == ["a", "b"]
    reads.clear()
    return artifact


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "SETTLED_S", -10.0)
    path = tmp_path / "large"
    path.write_bytes(b"1" * LARGE_BYTES)
    return path


def _sha256(path: Path) -> str:
    return cached(path, "sha256", hashes.file_sha256)


def _rewrite(path: Path, content: bytes) -> None:
    times = path.stat()
    time.sleep(0.05)  # the kernel's clock ticks every 4 ms or more often
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_what_was_published_is_not_read_again(published: Artifact, reads: list[str]) -> None:
    assert published.damage() is None
    assert reads == []
    first, second = (published.folder / name for name in FILES)
    _rewrite(first, b"TEXT")
    assert published.damage() == "a does not match its sha256 in manifest.json"
    first.write_text("text")
    shutil.copy2(second, second.with_name("copy"))
    os.replace(second.with_name("copy"), second)
    reads.clear()
    for _ in range(2):
        assert published.damage() is None
        assert sorted(reads) == ["a", "b"]
    assert published.damage(again=True) is None
    assert len(reads) == 4
    assert [*published.damages(["a"])] == []


def test_whoever_deletes_the_records_reads_everything_again(published: Artifact, reads: list[str]) -> None:
    record = hashes_file(published.folder)
    known = record.read_text()
    for content in (None, "{", "[]", known.replace(known.split('"')[3], "0" * 64)):
        record.unlink() if content is None else record.write_text(content)
        reads.clear()
        assert published.damage() is None
        assert "a" in reads


def test_what_may_change_is_read_again(published: Artifact, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is not remembered as long as the file system's clock has not passed its last change."""
    future_s = time.time() + 1000
    stamp = module.stamp
    monkeypatch.setattr(module, "stamp", lambda path: [*stamp(path)[:2], int(future_s * 1e9), stamp(path)[3]])
    for _ in range(2):
        assert published.damage() is None
    assert sorted(reads) == ["a", "a", "b", "b"]


def test_a_disk_that_takes_no_records_costs_only_time(published: Artifact, reads: list[str]) -> None:
    shutil.rmtree(hashes_file(published.folder).parent)
    hashes_file(published.folder).parent.touch()
    for _ in range(2):
        assert published.damage() is None
    assert len(reads) == 4


def test_a_link_to_an_artifact_shares_its_record(published: Artifact, reads: list[str], tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    link = tmp_path / "named" / "words"
    link.symlink_to(published.folder)
    assert Artifact(link).damage() is None
    assert reads == []
    assert [*link.parent.iterdir()] == [link]


def test_a_user_s_folder_gets_no_records_beside_it(published: Artifact, reads: list[str], tmp_path: Path) -> None:
    shutil.copytree(published.folder, tmp_path / "elsewhere" / "model")
    for _ in range(2):
        assert Artifact(tmp_path / "elsewhere" / "model").damage() is None
    assert len(reads) == 4
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["model"]


def test_a_user_s_large_file_is_read_once(large: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small = large.with_name("small")
    small.write_bytes(b"1")
    first = _sha256(large)
    assert _sha256(large) == first
    assert _sha256(small) == _sha256(small) == _sha256(small)
    assert reads == ["large", "small", "small", "small"]
    _rewrite(large, b"2" * LARGE_BYTES)
    assert _sha256(large) != first
    other = large.with_name("other")
    other.write_bytes(b"1" * LARGE_BYTES)
    shutil.copystat(large, other)
    other.rename(large)
    assert _sha256(large) == first
    (record,) = (large.parent / "cache" / "files").iterdir()
    record.write_text("{")
    assert _sha256(large) == first
    assert reads[4:] == ["large"] * 3
    monkeypatch.setattr(hashes, "SETTLED_S", 1000.0)  # a coarse clock could hide the next change
    _rewrite(large, b"2" * LARGE_BYTES)
    assert _sha256(large) == _sha256(large) != first
    assert reads[7:] == ["large"] * 2


def test_without_a_home_nothing_is_remembered(large: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some containers, which have no passwd entry."""
    for name in ("AIAYN_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_entry(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(RuntimeError):
        Path.home()
    assert _sha256(large) == _sha256(large)
    assert reads == ["large"] * 2
