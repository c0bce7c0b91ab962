"""pipeline.store.remembered: a large file is read once, and again after any change that its stat shows."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from pipeline.store import remembered as module
from pipeline.store.hashes import file_sha256
from pipeline.store.remembered import LARGE_BYTES, remembered


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The files read so far, with a separate cache and without a settling time."""
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "SETTLED_S", -10.0)
    return []


def _hash(path: Path, reads: list[Path], another_process: bool = True) -> str:
    def compute(path: Path) -> str:
        reads.append(path)
        return file_sha256(path)

    if another_process:
        module._known.clear()
    value = remembered(path, "sha256", compute, str)
    assert value == file_sha256(path)
    return value


def test_a_large_file_is_read_once(reads: list[Path], tmp_path: Path) -> None:
    """All processes together read a large file once, each process a small one once. Broken records are ignored."""
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(b"1" * LARGE_BYTES)
    small.write_bytes(b"1")
    for _ in range(3):
        _hash(large, reads)
        _hash(small, reads)
        _hash(small, reads, another_process=False)
    assert reads == [large, small, small, small]
    (record,) = (tmp_path / "cache" / "files").iterdir()
    known = json.loads(record.read_text())
    for broken in ("{", json.dumps({**known, "value": [known["value"]]})):
        record.write_text(broken)
        _hash(large, reads)
    assert reads[4:] == [large, large]


def test_without_a_home_nothing_is_remembered(
    reads: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a passwd entry, as in some containers, each process reads the file again, and none fails."""
    for name in ("AIAYN_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_entry(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(RuntimeError):
        Path.home()
    large = tmp_path / "large"
    large.write_bytes(b"1" * LARGE_BYTES)
    _hash(large, reads)
    _hash(large, reads)
    assert reads == [large, large]


def test_a_change_within_the_same_second_and_size_is_noticed(reads: list[Path], tmp_path: Path) -> None:
    """A file is read again if rewritten in place with its old times, or replaced by a copy with those times."""
    file = tmp_path / "large"
    file.write_bytes(b"1" * LARGE_BYTES)
    before = _hash(file, reads)
    times = file.stat()
    time.sleep(0.05)  # the kernel's clock ticks every 4 ms or more often
    file.write_bytes(b"2" * LARGE_BYTES)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert _hash(file, reads, another_process=False) != before
    other = tmp_path / "other"
    other.write_bytes(b"3" * LARGE_BYTES)
    shutil.copystat(file, other)
    other.rename(file)
    _hash(file, reads, another_process=False)
    assert len(reads) == 3


def test_a_file_that_has_just_changed_is_not_remembered(
    reads: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recent change is not remembered, because a coarse clock could hide the next one."""
    monkeypatch.setattr(module, "SETTLED_S", 1000.0)
    file = tmp_path / "large"
    file.write_bytes(b"1" * LARGE_BYTES)
    _hash(file, reads)
    _hash(file, reads, another_process=False)
    assert len(reads) == 2
