"""A stage that has lost its lock ends soon, with that error, and leaves the new owner's files alone."""

import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.errors import LockLostError
from pipeline.store.locks import Owner
from pipeline.store.store import Store
from tests.support.tiny_stages import Words
from workflows.engine import runner
from workflows.engine.dag import Stage

SUCCESSOR = Owner("far", 1, "the other", 0.0).written()  # the same in every process
LONG_S = 480.0


def _take_over(context: Context) -> None:
    """Takes the lock, like a file server, and restarts the artifact."""
    (context.folder.parent / ".locks" / f"{context.folder.name.removeprefix('.making-')}.lock").write_bytes(SUCCESSOR)
    (context.folder / "words.txt").write_text("theirs")


def _sleep(duration_s: float) -> None:
    """Sleeps in steps: Ray cancels a task only between two, and until then it keeps a CPU from the next test."""
    for _ in range(600):
        time.sleep(duration_s / 600)


def _map_long(context: Context) -> Words:
    _take_over(context)
    list(context.map(_sleep, [(LONG_S,)]))
    return Words(context.folder)


def _progress_long(context: Context) -> Words:
    _take_over(context)
    for i in range(600):
        time.sleep(LONG_S / 600)
        context.progress(i, 600, "steps")
    return Words(context.folder)


def _finish(context: Context) -> Words:
    (context.folder / "words.txt").write_text("ours")
    _take_over(context)
    return Words(context.folder)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("function", [_map_long, _progress_long, _finish])
def test_a_stage_whose_lock_is_lost_ends_and_publishes_nothing(tmp_path: Path, function: Any) -> None:
    store, step = Store(tmp_path), Stage(f"tiny_stages.{function.__name__}", function, Words)("long")
    began_s = time.monotonic()
    with pytest.raises(LockLostError, match=r"^another command has taken over .* went silent"):
        runner.run([step], store)
    assert time.monotonic() - began_s < LONG_S / 2
    assert store.find(step.name) is None
    assert (store.scratch(step.name) / "words.txt").read_text() == "theirs"
