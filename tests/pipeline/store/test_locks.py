"""Locks between real processes."""

import linecache
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pipeline.store import locks
from pipeline.store.locks import FileLock, holder
from tests.support.lock_holder import lock_holder

SPAWN = multiprocessing.get_context("spawn")
TAKES = 10


def test_a_live_owner_is_named_and_waited_for(tmp_path: Path) -> None:
    """A waiter takes the lock when the process that owns it releases it, and no lock file remains."""
    with lock_holder(tmp_path / "a") as process, FileLock(tmp_path / "a", "train") as lock:
        owner = lock.take()
        assert owner is not None
        assert (owner.pid, owner.task) == (process.pid, "train")
        assert str(owner).startswith(f"pid {process.pid} on host {os.uname().nodename} since ")
        assert holder(lock.path) == owner
        assert not lock.is_ours()
        waiting = threading.Thread(target=lock.wait)
        waiting.start()
        waiting.join(1.2)
        assert waiting.is_alive()
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        waiting.join(20)
        assert not waiting.is_alive()
        assert lock.take() is None
        assert lock.is_ours()
    assert [path.name for path in lock.path.parent.iterdir()] == ["guard"]
    assert not lock.is_ours()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A SIGKILL frees the lock at once, and the next owner logs it."""
    with lock_holder(tmp_path / "a") as process:
        with FileLock(tmp_path / "a", "train again") as lock:
            assert lock.take()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert holder(lock.path) is None
            lock.wait()
            assert lock.take() is None
            assert holder(lock.path)
        assert f"taking over the lock on a (train) from pid {process.pid} on host" in caplog.text


def test_a_lock_is_not_ours_once_its_file_is_gone(tmp_path: Path) -> None:
    """The file was removed: the next process locks a new file, which is not ours to remove."""
    with FileLock(tmp_path / "a", "first") as first, FileLock(tmp_path / "a", "second") as second:
        assert first.take() is None
        first.path.unlink()
        assert second.take() is None
        assert not first.is_ours()
        first.release()
        assert second.is_ours()


def _take_often(target: Path, log: Path) -> None:
    for _ in range(TAKES):
        with FileLock(target, "race") as lock:
            while lock.take():
                time.sleep(0.001)
                holder(lock.path)
            for word in ("in", "out"):
                with log.open("a") as file:
                    file.write(f"{word} {os.getpid()}\n")
                time.sleep(0.002)


def test_racing_processes_hold_the_lock_one_at_a_time(tmp_path: Path) -> None:
    """Four processes take the lock ten times each, and never hold it at the same time."""
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
