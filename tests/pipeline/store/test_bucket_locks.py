"""pipeline.store.bucket_locks between real processes, on a real S3 server."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.errors import BucketError
from pipeline.store import bucket_locks
from pipeline.store.bucket import Bucket, Object
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.locks import Owner
from tests.support.s3_server import FaultyProxy, S3Server

SPAWN = multiprocessing.get_context("spawn")
TAKES = 4
LEASE_S = 3.0
"""Half a minute is too long for a test."""
MAX_S = 120.0
"""Ends a test that hangs."""
OBJECT = "store/.locks/a.json"


@pytest.fixture
def bucket(at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket with a shorter lease and more frequent renewals."""
    monkeypatch.setattr(bucket_locks, "LEASE_S", LEASE_S)
    monkeypatch.setattr(bucket_locks, "RENEWAL_S", 0.2)
    return Bucket(at_s3.bucket())


def _take_in_turn(uri: str, counter: Path) -> None:
    """Increments a number in a file, slowly."""
    for _ in range(TAKES):
        with BucketLock(Bucket(uri), "store/race", "race") as lock:
            lock.take_in_turn()
            value = int(counter.read_text())
            time.sleep(0.02)
            counter.write_text(str(value + 1))


def test_the_lock_of_a_silent_owner_is_freed(bucket: Bucket) -> None:
    """A waiter frees the lock after a lease without a renewal."""
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


def test_a_lock_is_kept_as_long_as_it_is_renewed_and_its_loss_is_noticed(bucket: Bucket, at_s3: S3Server) -> None:
    """Waiters poll ever less often. A lock taken by another owner is not ours to release."""
    with BucketLock(bucket, "store/a", "train") as lock, FaultyProxy(at_s3.address) as proxy:
        assert lock.take() is None
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.address)
            waiting = SPAWN.Process(target=_take_in_turn_of_a, args=(bucket.uri,))
            waiting.start()
        _wait_until(lambda: proxy.n_passed > 0)
        waiting.join(LEASE_S + 2)
        assert waiting.is_alive()
        assert proxy.n_passed < 10
        bucket.write(OBJECT, b"another's")
        assert not lock.is_ours()
    stored = bucket.read(OBJECT)
    assert stored
    assert stored.data == b"another's"
    waiting.kill()
    waiting.join()


class ShortOfMemory(Bucket):
    """A bucket that fails to read once, with an error that is not the service's."""

    failed: ClassVar[list[str]] = []

    def read(self, name: str) -> Object | None:
        if threading.current_thread() is not threading.main_thread() and not self.failed:
            self.failed.append(name)
            raise MemoryError
        return super().read(name)


def test_a_lock_is_renewed_after_any_error(bucket: Bucket) -> None:
    """Renewal continues after one attempt failed."""
    with BucketLock(ShortOfMemory(bucket.uri), "store/a", "train") as lock:
        assert lock.take() is None
        _wait_until(lambda: bool(ShortOfMemory.failed))
        before = _e_tag(bucket)
        _wait_until(lambda: _e_tag(bucket) != before)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + MAX_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def _e_tag(bucket: Bucket) -> str:
    held = bucket.read(OBJECT)
    assert held
    return held.e_tag


def _take_in_turn_of_a(uri: str) -> None:
    bucket_locks.LEASE_S = LEASE_S
    BucketLock(Bucket(uri), "store/a", "train").take_in_turn()


def test_a_service_without_e_tags_is_refused(bucket: Bucket, at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ETags, taking a free lock would be a race."""
    bucket.write(OBJECT, bucket_locks.FREE)
    with FaultyProxy(at_s3.address) as proxy:
        proxy.hides_e_tags = True
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        with pytest.raises(BucketError, match=r"^s3://.*: the service returns no ETags, which locks need"):
            BucketLock(bucket, "store/a", "train").take()


def test_racing_processes_hold_the_lock_one_at_a_time(at_s3: S3Server, tmp_path: Path) -> None:
    """Processes that compete for the lock lose no increment."""
    uri, counter = at_s3.bucket(), tmp_path / "counter"
    counter.write_text("0")
    racing = [SPAWN.Process(target=_take_in_turn, args=(uri, counter)) for _ in range(3)]
    for process in racing:
        process.start()
    for process in racing:
        process.join()
    assert counter.read_text() == str(3 * TAKES)
