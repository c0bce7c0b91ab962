"""Locks in a bucket, for machines without a shared disk (semantics: `pipeline.store.locks`).

    with BucketLock(bucket, "store/training-0123", "train en-de base") as lock:
        owner = lock.take()

A lock is an object that names its owner, written conditionally on being unchanged. The owner renews it every few
seconds; a waiter that sees no renewal for `LEASE_S` frees it. A free lock remains as an object without an owner, since
deleting it could delete a lock taken at that moment.
"""

import logging
import secrets
import threading
import time
from contextlib import suppress

from pipeline.errors import BucketError
from pipeline.store.bucket import Bucket, Object
from pipeline.store.locks import POLL_S, Lock, Owner

RENEWAL_S = 5.0
LEASE_S = 30.0
"""An owner that has not renewed its lock for this long counts as dead."""
MAX_POLL_S = 4.0
FREE = b"{}"

logger = logging.getLogger(__name__)


class BucketLock(Lock):
    """The lock on building the artifact `target` of a bucket. All methods raise BucketError if that does not answer."""

    def __init__(self, bucket: Bucket, target: str, task: str) -> None:
        parent, _, self._name = target.rpartition("/")
        self._bucket, self._object, self._task = bucket, f"{parent}/.locks/{self._name}.json", task
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"lock of {self._name}", daemon=True)

    def names(self, line: bytes) -> bool:
        """See `Lock.names`."""
        held = self._bucket.read(self._object)
        return held is not None and held.data.startswith(line)

    def take(self) -> Owner | None:
        """See `Lock.take`. `wait` first frees the lock of a dead owner."""
        while True:  # until we or a faster process have it
            held = self._bucket.read(self._object)
            if held and held.data != FREE:
                return Owner.read(held.data)
            if held and not held.e_tag:
                raise BucketError(
                    f"{self._bucket.uri}: the service returns no ETags, which locks need; "
                    "use a service with conditional writes, or a folder as --store"
                )
            if self._write(held):
                self._renewing.start()
                return None

    def wait(self) -> None:
        """See `Lock.wait`. Frees the lock of a dead owner."""
        seen, silent_s, poll_s = "", 0.0, POLL_S
        while (held := self._bucket.read(self._object)) and held.data != FREE:
            if held.e_tag != seen:
                seen, silent_s = held.e_tag, 0.0
            elif silent_s >= LEASE_S:
                owner = Owner.read(held.data)
                logger.warning("freeing the lock on %s (%s): its owner, %s, is silent", self._name, owner.task, owner)
                self._bucket.replace(self._object, FREE, held.e_tag)
                continue
            time.sleep(poll_s)
            silent_s += poll_s  # not wall-clock time: while the service is down, owners cannot renew
            poll_s = min(2 * poll_s, MAX_POLL_S)

    def is_ours(self) -> bool:
        """See `Lock.is_ours`."""
        return self._ours() is not None

    def release(self) -> None:
        """See `Lock.release`."""
        self._released.set()
        if self._renewing.is_alive():
            self._renewing.join()
        if ours := self._ours():
            self._bucket.replace(self._object, FREE, ours.e_tag)

    def _renew(self) -> None:
        while not self._released.wait(RENEWAL_S):
            with suppress(Exception):  # retried next time; if this thread died, the lock would expire
                if ours := self._ours():
                    self._write(ours)
                else:
                    logger.warning("lost the lock on %s (%s): another process has taken it", self._name, self._task)
                    return

    def _ours(self) -> Object | None:
        held = self._bucket.read(self._object) if self.line else None
        return held if held and held.data.startswith(self.line) else None

    def _write(self, held: Object | None) -> bool:
        """Replaces the lock's content by our own; returns whether it was still `held`."""
        self.line = self.line or Owner.here(self._task).written()
        data = self.line + b"\n" + secrets.token_hex(8).encode()  # a new ETag each time
        if held is None:
            return self._bucket.create(self._object, data)
        return self._bucket.replace(self._object, data, held.e_tag)
