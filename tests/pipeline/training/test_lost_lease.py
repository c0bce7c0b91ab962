"""A run in a bucket stops when another process has taken its lease, and does not touch the other's objects."""

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset
from pipeline.store.bucket import Bucket
from pipeline.store.locks import Owner
from pipeline.store.scratch import LockLostError
from pipeline.store.store import Store
from pipeline.training import layout, on_ray
from tests.support.s3_server import S3Server
from tests.support.tiny_training import copied, with_fields

SUCCESSOR = Owner("far", 1, "the other", 0.0).written()  # the same in every process
LOST = 30
"""The update at which another process takes the lease."""


def _take_over(uri: str, name: str, event: dict[str, Any]) -> None:
    """At update LOST, transfers a run's lock to another process, which keeps files of the same names."""
    bucket, place = Bucket(uri), f"store/.making-{name}"
    if event.get("step") == LOST:
        bucket.write(f"store/.locks/{name}.json", SUCCESSOR)
        for kept in ["recovery/00000001/manifest.json", *bucket.sizes_bytes(place)]:
            bucket.write(f"{place}/{kept}", b"theirs")


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_whose_lease_is_lost_stops_and_leaves_the_other_s_alone(
    at_s3: S3Server, dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """It ends before its next checkpoint, thousands of updates early, and overwrites, adds or prunes no object."""
    there = {**at_s3.variables, "AIAYN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    for module in (layout, on_ray):  # one worker's process, and several workers'
        monkeypatch.setattr(module, "worker_environment", lambda: there)
    store, name = Store.at(f"{at_s3.bucket()}/runs"), "training-1"
    encoded = store.publish("encoding-1", partial(copied, dataset), {}, holds_lock=lambda: True)
    settings = with_fields(updates=5000, checkpoint_updates=10, keep_checkpoints=500, workers=workers)
    place = f"store/.making-{name}"
    with store.lock(name, "train") as lock, store.in_use(store.scratch(name)):
        assert lock.take() is None
        store.scratch(name).mkdir()
        emit, shared = partial(_take_over, store.uri, name), store.shared_scratch(name, lock)
        began_s = time.monotonic()
        with pytest.raises(LockLostError, match=r"^another command has taken over .* went silent"):
            on_ray.train(Context(store.scratch(name), emit, shared=shared), encoded, settings)
        print(f"{workers} workers: the run ended {time.monotonic() - began_s:.1f} s after it began")
    kept = {file: store.bucket.read(f"{place}/{file}") for file in store.bucket.sizes_bytes(place)}
    updates = {int(match[1]) for file in kept if (match := re.match(r"checkpoints/(\d+)/", file))}
    assert updates
    assert max(updates) <= LOST
    assert "recovery/00000001/manifest.json" in kept
    assert {stored.data for stored in kept.values() if stored} == {b"theirs"}
