import linecache
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

from pipeline.errors import BucketError
from pipeline.store import bucket_locks, locks
from pipeline.store.bucket import Bucket, Object
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.locks import FileLock, Owner, holder
from pipeline.store.store import Store
from tests.support.lock_holder import lock_holder
from tests.support.s3_server import FaultyProxy, S3Server
from tests.support.waiting import until

SPAWN = multiprocessing.get_context("spawn")
TAKES = 4
LEASE_S = 1.0
"""Half a minute is too long for a test."""
MAX_S = 120.0
"""Ends a test that hangs."""
OBJECT = "store/.locks/a.json"


@pytest.fixture
def bucket(at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(bucket_locks, "LEASE_S", LEASE_S)
    monkeypatch.setattr(bucket_locks, "RENEWAL_S", 0.2)
    return Bucket(at_s3.bucket())


def _take_in_turn(store: Store, counter: Path) -> None:
    locks.POLL_S = bucket_locks.POLL_S = 0.02
    for _ in range(TAKES):
        with store.lock("race", "race") as lock:
            lock.take_in_turn()
            value = int(counter.read_text())
            time.sleep(0.02)
            counter.write_text(str(value + 1))


def test_racing_processes_hold_the_lock_one_at_a_time(store: Store, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    racing = [SPAWN.Process(target=_take_in_turn, args=(store, counter)) for _ in range(3)]
    for process in racing:
        process.start()
    for process in racing:
        process.join(MAX_S)
    assert counter.read_text() == str(3 * TAKES)


def test_a_live_owner_is_named_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "POLL_S", 0.05)
    with lock_holder(tmp_path / "a") as process, FileLock(tmp_path / "a", "train") as lock:
        owner = lock.take()
        assert (owner.pid, owner.task) == (process.pid, "train")
        assert str(owner).startswith(f"pid {process.pid} on host {os.uname().nodename} since ")
        assert holder(lock.path) == owner
        assert not lock.is_ours()
        waiting = threading.Thread(target=lock.wait)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        process.stdin.write("\n")
        process.stdin.flush()
        waiting.join(20)
        assert not waiting.is_alive()
        assert lock.take() is None
        assert lock.is_ours()
    assert [path.name for path in lock.path.parent.iterdir()] == ["guard"]
    assert not lock.is_ours()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with lock_holder(tmp_path / "a") as process, FileLock(tmp_path / "a", "train again") as lock:
        assert lock.take()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert holder(lock.path) is None
        lock.wait()
        assert lock.take() is None
        assert holder(lock.path)


def test_looking_does_not_take(tmp_path: Path) -> None:
    """Two threads look all the time. The file of a killed process is there, so each take is one over from it."""
    lock, stop = FileLock(tmp_path / "a", "task"), threading.Event()
    lock.path.parent.mkdir()
    with ThreadPoolExecutor(2) as threads:
        threads.map(lambda _: [holder(lock.path) for _ in iter(stop.is_set, True)], range(2))
        refused = [(lock.path.touch(), lock.take(), lock.release())[1] for _ in range(300)]
        stop.set()
    assert not any(refused)


def test_a_lock_is_not_ours_once_its_file_is_gone(tmp_path: Path) -> None:
    """The file was removed: the next process locks a new file, which is not ours to remove."""
    with FileLock(tmp_path / "a", "first") as first, FileLock(tmp_path / "a", "second") as second:
        assert first.take() is None
        first.path.unlink()
        assert second.take() is None
        assert not first.is_ours()
        first.release()
        assert second.is_ours()


def test_a_task_cancelled_anywhere_keeps_no_lock(tmp_path: Path) -> None:
    """Ray cancels a task by a KeyboardInterrupt between any two lines, and its process continues with other tasks."""
    target, lines = tmp_path / "target", 0

    def interrupting(at: int) -> Callable[..., Any]:
        def trace(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
            nonlocal lines
            # Python checks for signals after calls: not between a body's last line and the end of its `with`.
            line = linecache.getline(locks.__file__, frame.f_lineno)
            if event == "line" and frame.f_code.co_filename == locks.__file__ and not line.lstrip().startswith("with "):
                lines += 1
                if lines == at:
                    raise KeyboardInterrupt
            return trace

        return trace

    interrupted = 0
    for at in range(1, 200):
        lines, before = 0, sys.gettrace()
        with suppress(KeyboardInterrupt):
            sys.settrace(interrupting(at))
            try:
                with FileLock(target, "work") as lock:
                    lock.take_in_turn()
            finally:
                sys.settrace(before)
        interrupted += lines == at
        with FileLock(target, "next") as lock:
            assert lock.take() is None, f"interrupted at line {at}"
    assert interrupted > 20


def test_the_lock_of_a_silent_owner_is_freed(bucket: Bucket) -> None:
    owner = Owner("far", 1, "train", time.time())
    bucket.write(OBJECT, owner.written())
    with BucketLock(bucket, "store/a", "train") as lock:
        assert lock.take() == owner
        assert lock.take() == owner
        began_s = time.monotonic()
        lock.wait()
        assert time.monotonic() - began_s >= LEASE_S
        assert lock.take() is None
        assert lock.is_ours()


def _take_in_bucket(uri: str) -> None:
    bucket_locks.LEASE_S = LEASE_S
    BucketLock(Bucket(uri), "store/a", "train").take_in_turn()


def test_a_lock_is_kept_as_long_as_it_is_renewed_and_its_loss_is_noticed(bucket: Bucket, at_s3: S3Server) -> None:
    with BucketLock(bucket, "store/a", "train") as lock, FaultyProxy(at_s3) as proxy:
        assert lock.take() is None
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.address)
            waiting = SPAWN.Process(target=_take_in_bucket, args=(bucket.uri,))
            waiting.start()
        until(lambda: proxy.n_passed, MAX_S)
        waiting.join(LEASE_S + 2)
        assert waiting.is_alive()
        assert proxy.n_passed < 10
        bucket.write(OBJECT, b"another's")
        assert not lock.is_ours()
    assert bucket.read(OBJECT).data == b"another's"
    waiting.kill()
    waiting.join()


class ShortOfMemory(Bucket):
    failed: ClassVar[list[str]] = []

    def read(self, name: str) -> Object | None:
        if threading.current_thread() is not threading.main_thread() and not self.failed:
            self.failed.append(name)
            raise MemoryError
        return super().read(name)


def test_a_lock_is_renewed_after_any_error(bucket: Bucket) -> None:
    with BucketLock(ShortOfMemory(bucket.uri), "store/a", "train") as lock:
        assert lock.take() is None
        until(lambda: ShortOfMemory.failed, MAX_S)
        before = bucket.read(OBJECT)
        until(lambda: bucket.read(OBJECT) != before, MAX_S)


def test_a_service_without_e_tags_is_refused(bucket: Bucket, at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ETags, taking a free lock would be a race."""
    bucket.write(OBJECT, bucket_locks.FREE)
    with FaultyProxy(at_s3) as proxy:
        proxy.hides_e_tags = True
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        with pytest.raises(BucketError, match=r"^s3://.*: the service returns no ETags, which locks need"):
            BucketLock(bucket, "store/a", "train").take()
