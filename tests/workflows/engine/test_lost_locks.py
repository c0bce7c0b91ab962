"""A stage that has lost its lock ends soon, with that error, and leaves the new owner's files alone."""

import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifact import Context
from pipeline.store.bucket import Bucket
from pipeline.store.locks import Owner
from pipeline.store.scratch import LockLostError
from pipeline.store.store import Store
from tests.support.s3_server import S3Server
from tests.support.tiny_stages import Words
from workflows.engine import execution, runner
from workflows.engine.dag import Stage

SUCCESSOR = Owner("far", 1, "the other", 0.0).written()  # the same in every process
LONG_S = 480.0


def _take_over(context: Context, uri: str) -> None:
    """Takes the lock, like a file server or a waiter; in a folder, restarts the artifact."""
    name = context.folder.name.removeprefix(".making-")
    if uri:
        Bucket(uri).write(f"store/.locks/{name}.json", SUCCESSOR)
    else:
        (context.folder.parent / ".locks" / f"{name}.lock").write_bytes(SUCCESSOR)
        (context.folder / "words.txt").write_text("theirs")


def _sleep(duration_s: float) -> None:
    """Sleeps in steps: Ray cancels a task only between two, and until then it keeps a CPU from the next test."""
    for _ in range(600):
        time.sleep(duration_s / 600)


def _map_long(context: Context, uri: str) -> Words:
    _take_over(context, uri)
    list(context.map(_sleep, [(LONG_S,)]))
    return Words(context.folder)


def _progress_long(context: Context, uri: str) -> Words:
    _take_over(context, uri)
    for i in range(600):
        time.sleep(LONG_S / 600)
        context.progress(i, 600, "steps")
    return Words(context.folder)


def _finish(context: Context, uri: str) -> Words:
    (context.folder / "words.txt").write_text("ours")
    _take_over(context, uri)
    return Words(context.folder)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("function", [_map_long, _progress_long, _finish])
@pytest.mark.parametrize("shared", ["folder", "bucket"])
def test_a_stage_whose_lock_is_lost_ends_and_publishes_nothing(
    at_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, shared: str
) -> None:
    there = {**at_s3.variables, "AIAYN_CACHE": str(tmp_path / "cache")}
    monkeypatch.setattr(execution, "worker_environment", lambda: there)
    uri = f"{at_s3.bucket()}/runs" if shared == "bucket" else ""
    store = Store.at(uri or tmp_path)
    step = Stage(f"tiny_stages.{function.__name__}", function, Words, computes=True)("long", uri)
    began_s = time.monotonic()
    with pytest.raises(LockLostError, match=r"^another command has taken over .* went silent"):
        runner.run([step], store)
    print(f"{function.__name__}, {shared}: ended after {time.monotonic() - began_s:.1f} s")
    assert time.monotonic() - began_s < LONG_S / 2
    assert store.find(step.name) is None
    if uri:
        assert store.bucket.read(f"store/.locks/{step.name}.json").data == SUCCESSOR
    else:
        assert (store.scratch(step.name) / "words.txt").read_text() == "theirs"
