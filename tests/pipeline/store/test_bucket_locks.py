"""pipeline.store.bucket_locks between real processes, on a real S3 server."""

import json
import multiprocessing
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pipeline.store import locks
from pipeline.store.bucket import Bucket
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.locks import Owner
from tests.support.s3_server import S3Server

SPAWN = multiprocessing.get_context("spawn")
TAKES = 4
DEAD_S = 3.0
"""A minute is too long for a test; the service's clock ticks in seconds."""


def _take_in_turn(uri: str, counter: Path) -> None:
    """Adds to a number in a file, which takes a while."""
    for _ in range(TAKES):
        with BucketLock(Bucket(uri), "store/race", "race") as lock:
            lock.take_in_turn()
            value = int(counter.read_text())
            time.sleep(0.02)
            counter.write_text(str(value + 1))


def _held_by(bucket: Bucket, **differing: Any) -> Owner:
    """Writes the lock of an owner on another machine."""
    owner = Owner(**{**asdict(Owner("far", "far away", 1, 1, "t", "train", time.time())), **differing})
    bucket.write("store/.locks/a.json", json.dumps(asdict(owner)).encode())
    return owner


def test_a_silent_owner_elsewhere_is_dead(at_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the service's clock; one that renews its lock is alive, and notices when it has lost it."""
    monkeypatch.setattr(locks, "DEAD_S", DEAD_S)
    monkeypatch.setattr(locks, "HEARTBEAT_S", 0.2)
    bucket = Bucket(at_s3.bucket())
    owner = _held_by(bucket)
    with BucketLock(bucket, "store/a", "train") as lock:
        assert lock.take() == owner
        began_s = time.monotonic()
        lock.wait_for(owner)
        assert DEAD_S - 1 <= time.monotonic() - began_s <= DEAD_S + 5
        assert lock.take() is None
        time.sleep(DEAD_S + 1)
        assert BucketLock(bucket, "store/a", "").holder() is not None  # it is renewed
        _held_by(bucket, token="another")
        assert not lock.is_ours()
    holder = BucketLock(bucket, "store/a", "").holder()
    assert holder
    assert holder.token == "another"  # it was not ours to release


def test_racing_processes_hold_the_lock_one_at_a_time(at_s3: S3Server, tmp_path: Path) -> None:
    """No increment is lost, among processes that take the lock at the same time."""
    uri, counter = at_s3.bucket(), tmp_path / "counter"
    counter.write_text("0")
    racing = [SPAWN.Process(target=_take_in_turn, args=(uri, counter)) for _ in range(3)]
    for process in racing:
        process.start()
    for process in racing:
        process.join()
    assert counter.read_text() == str(3 * TAKES)
