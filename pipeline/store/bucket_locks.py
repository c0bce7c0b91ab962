"""Locks in a bucket, for processes on machines that share no disk (`pipeline.store.locks` says what a lock is).

    with BucketLock(bucket, "store/training-0123", "train en-de base") as lock:
        owner = lock.take()

A lock is an object that names its owner. It is written only on the condition that nobody has written it meanwhile, and
its owner writes it anew every few seconds; whoever waits for it and sees it unchanged for longer than that frees it. A
free lock stays as an object without an owner: removing it could remove the lock of whoever took it in that moment.
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
"""An owner counts as dead once it has not renewed its lock for this long."""
MAX_POLL_S = 4.0
FREE = b"{}"

logger = logging.getLogger(__name__)


class BucketLock(Lock):
    """The lock on making the artifact `target` of a bucket. All methods raise BucketError if that does not answer."""

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
        """See `Lock.take`. The lock of a dead owner is free after `wait`."""
        while True:  # until it is ours, or that of a faster process
            held = self._bucket.read(self._object)
            if held and held.data != FREE:
                return Owner.read(held.data)
            if held and not held.e_tag:
                raise BucketError(
                    f"{self._bucket.uri}: the service gives its objects no ETags, so it can lock nothing; "
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
                logger.warning("freeing the lock on %s (%s) from %s, which is silent", self._name, owner.task, owner)
                self._bucket.replace(self._object, FREE, held.e_tag)
                continue
            time.sleep(poll_s)
            silent_s += poll_s  # by no clock: while the service is away, nobody can renew anything
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
            with suppress(Exception):  # the next time, perhaps; without this thread the lock would be lost
                if ours := self._ours():
                    self._write(ours)
                else:
                    logger.warning("the lock on %s (%s) is lost: another process has taken it", self._name, self._task)
                    return

    def _ours(self) -> Object | None:
        held = self._bucket.read(self._object) if self.line else None
        return held if held and held.data.startswith(self.line) else None

    def _write(self, held: Object | None) -> bool:
        """Writes that the lock is ours in place of what it held; returns whether it still held that."""
        self.line = self.line or Owner.here(self._task).written()
        data = self.line + b"\n" + secrets.token_hex(8).encode()  # each time another tag
        if held is None:
            return self._bucket.create(self._object, data)
        return self._bucket.replace(self._object, data, held.e_tag)
