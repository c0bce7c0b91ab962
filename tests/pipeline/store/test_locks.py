"""Locks between real processes, and with owners on other hosts, whose lock files the tests write themselves."""

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.store import locks
from pipeline.store.locks import DEAD_S, FileLock, Owner, wait_for
from tests.support.lock_holder import lock_holder

SPAWN = multiprocessing.get_context("spawn")
TAKES = 10


def _write(lock: FileLock, age_s: float, **differing: Any) -> Owner:
    """Writes the lock of an owner on another host, last renewed `age_s` ago."""
    owner = {
        "host": "far",
        "machine": "far away",
        "pid": os.getpid(),
        "process_started": 1,
        "token": "t",
        "task": "train",
    }
    lock.path.parent.mkdir(exist_ok=True)
    lock.path.write_text(json.dumps({**owner, "since": time.time() - age_s, **differing}))
    os.utime(lock.path, (time.time() - age_s,) * 2)
    return Owner(**json.loads(lock.path.read_text()))


def test_a_live_owner_is_named_and_waited_for(tmp_path: Path) -> None:
    """The lock is handed over when its owner, another process, releases it; no lock file is left at the end."""
    with lock_holder(tmp_path / "a") as holder, FileLock(tmp_path / "a", "train") as lock:
        owner = lock.take()
        assert owner is not None
        assert (owner.pid, owner.task) == (holder.pid, "train")
        assert str(owner).startswith(f"pid {holder.pid} on host {os.uname().nodename} since ")
        assert not lock.is_ours()
        waiting = threading.Thread(target=wait_for, args=(lock.path, owner))
        waiting.start()
        waiting.join(1.2)
        assert waiting.is_alive()
        assert holder.stdin
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiting.join(20)
        assert not waiting.is_alive()
        assert lock.take() is None
        assert lock.is_ours()
    assert [path.name for path in lock.path.parent.iterdir()] == ["guard"]
    assert not lock.is_ours()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a SIGKILL this happens at once, whether the process is still a zombie or already reaped, and is logged."""
    for reaped in (False, True):
        with lock_holder(tmp_path / "a") as holder:
            owner = FileLock(tmp_path / "a", "train").take()
            assert owner is not None
            os.kill(holder.pid, signal.SIGKILL)
            if reaped:
                holder.wait()
            wait_for(FileLock(tmp_path / "a", "").path, owner)
            with FileLock(tmp_path / "a", "train again") as lock:
                assert lock.take() is None
        assert f"taking over the lock on a (train) from pid {holder.pid} on host" in caplog.text


def test_a_later_process_with_the_same_pid_is_not_the_owner(tmp_path: Path) -> None:
    """The process did not start at the time recorded in the lock."""
    with FileLock(tmp_path / "a", "train") as lock:
        _write(lock, 0, machine=locks.machine())
        assert lock.take() is None


def test_owners_on_other_hosts_count_as_alive_while_they_renew_their_lock(tmp_path: Path) -> None:
    """A lock renewed less than a minute ago by the file system's clock is respected; an older one is not."""
    with FileLock(tmp_path / "a", "train") as lock:
        fresh = _write(lock, DEAD_S - 30)
        assert lock.take() == fresh
        waiting = threading.Thread(target=wait_for, args=(lock.path, fresh))
        waiting.start()
        waiting.join(1.2)
        assert waiting.is_alive()
        _write(lock, DEAD_S + 30)
        waiting.join(20)
        assert not waiting.is_alive()
        assert lock.take() is None


def test_an_owner_renews_its_lock_and_notices_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is renewed while the lock is held; after another host takes over, it is neither renewed nor removed."""
    monkeypatch.setattr(locks, "HEARTBEAT_S", 0.05)
    with FileLock(tmp_path / "a", "train") as lock:
        assert lock.take() is None
        os.utime(lock.path, (0, 0))
        end_s = time.monotonic() + 10
        while lock.path.stat().st_mtime == 0:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        _write(lock, 30)
        assert not lock.is_ours()
        taken_over = lock.path.stat().st_mtime
        time.sleep(0.5)
        assert lock.path.stat().st_mtime == taken_over
    assert lock.path.exists()


def _take_often(target: Path, log: Path) -> None:
    for _ in range(TAKES):
        with FileLock(target, "race") as lock:
            while lock.take():
                time.sleep(0.001)
            for word in ("in", "out"):
                with log.open("a") as file:
                    file.write(f"{word} {os.getpid()}\n")
                time.sleep(0.002)


def test_racing_processes_hold_the_lock_one_at_a_time(tmp_path: Path) -> None:
    """Four processes take the lock ten times each; no two ever hold it at the same time."""
    racers = [SPAWN.Process(target=_take_often, args=(tmp_path / "a", tmp_path / "log")) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 4 * TAKES * 2
    for entry, exit_line in zip(lines[::2], lines[1::2], strict=True):
        assert (entry.split()[0], exit_line.split()[0]) == ("in", "out")
        assert entry.split()[1] == exit_line.split()[1]
