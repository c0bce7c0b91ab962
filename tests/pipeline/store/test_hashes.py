"""pipeline.store.hashes: an artifact's files are read once, when it is published or verified."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.store import artifact as module
from pipeline.store.artifact import Artifact
from pipeline.store.hashes import VERIFIED, hashes_file
from pipeline.store.store import Store

FILES = ("a", "part/b")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the hashed files."""
    read: list[str] = []
    hashed: Callable[[Path], str] = module.file_sha256

    def counting(path: Path) -> str:
        read.append(path.name)
        return hashed(path)

    monkeypatch.setattr(module, "file_sha256", counting)
    return read


@pytest.fixture
def published(tmp_path: Path, reads: list[str]) -> Artifact:
    """An artifact of two files, not read since it was published."""

    def make(folder: Path) -> Artifact:
        (folder / "part").mkdir()
        for name in FILES:
            (folder / name).write_text("text")
        return Artifact(folder)

    artifact = Store(tmp_path).publish("words-1", make, {}, holds_lock=lambda: True)
    assert sorted(reads) == ["a", "b"]
    reads.clear()
    return artifact


def test_what_was_published_is_not_read_again(published: Artifact, reads: list[str]) -> None:
    """Only changed files are read: rewritten in place with the old times and size, or replaced by a copy."""
    assert published.damage() is None
    assert reads == []
    first, second = (published.folder / name for name in FILES)
    times = first.stat()
    first.write_text("TEXT")
    os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns))
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
    """Without records all files are read (docs/recovery.md). Broken ones count as missing, wrong ones hide nothing."""
    record = hashes_file(published.folder)
    known = record.read_text()
    for content in (None, "{", "[]", known.replace(known.split('"')[3], "0" * 64)):
        record.unlink() if content is None else record.write_text(content)
        reads.clear()
        assert published.damage() is None
        assert "a" in reads


def test_nothing_is_remembered_of_a_file_that_may_change_unseen(
    published: Artifact, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is not remembered as long as the file system's clock has not passed its last change."""
    future_s = time.time() + 1000
    stamp = module.stamp
    monkeypatch.setattr(module, "stamp", lambda path: [*stamp(path)[:2], int(future_s * 1e9), stamp(path)[3]])
    for _ in range(2):
        assert published.damage() is None
    assert sorted(reads) == ["a", "a", "b", "b"]


def test_a_disk_that_takes_no_records_costs_only_time(
    published: Artifact, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that cannot be written is no error and leaves no files."""
    hashes_file(published.folder).unlink()

    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    for _ in range(2):
        assert published.damage() is None
    assert len(reads) == 4
    assert [*(published.folder.parent / VERIFIED).iterdir()] == []


def test_a_link_to_an_artifact_shares_its_record(published: Artifact, reads: list[str], tmp_path: Path) -> None:
    """No record is written beside the link."""
    (tmp_path / "named").mkdir()
    link = tmp_path / "named" / "words"
    link.symlink_to(published.folder)
    assert Artifact(link).damage() is None
    assert reads == []
    assert [*link.parent.iterdir()] == [link]


def test_a_user_s_folder_gets_no_records_beside_it(published: Artifact, reads: list[str], tmp_path: Path) -> None:
    """A model outside a store is read each time, and its parent folder does not change."""
    shutil.copytree(published.folder, tmp_path / "elsewhere" / "model")
    for _ in range(2):
        assert Artifact(tmp_path / "elsewhere" / "model").damage() is None
    assert len(reads) == 4
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["model"]
