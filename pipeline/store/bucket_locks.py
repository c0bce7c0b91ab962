"""Locks in a bucket, for processes on machines that share no disk (`pipeline.store.locks` says what a lock is).

    with BucketLock(bucket, "store/training-0123", "train en-de base") as lock:
        owner = lock.take()

A lock is an object that names its owner. It is written only on the condition that nobody has written it meanwhile, and
its owner writes it anew every few seconds, so the service's clock tells its age. A released lock stays as an object
without an owner: removing it could remove the lock of whoever took it in that moment.
"""

import json
import secrets
import time
from dataclasses import asdict
from typing import NamedTuple

from pipeline.store.bucket import Bucket
from pipeline.store.locks import POLL_S, Lock, Owner, is_dead

FREE = b"{}"


class _Held(NamedTuple):
    owner: Owner | None
    """None: the lock is free."""
    e_tag: str
    renewed_s: float


class BucketLock(Lock):
    """The lock on making the artifact `target` of a bucket."""

    def __init__(self, bucket: Bucket, target: str, task: str) -> None:
        parent, _, name = target.rpartition("/")
        super().__init__(name, task)
        self._bucket, self._folder = bucket, f"{parent}/.locks"
        self._object = f"{self._folder}/{name}.json"

    def take(self) -> Owner | None:
        """See `Lock.take`. Raises BucketError where the bucket cannot be reached."""
        ours = self._ourselves()
        while True:
            held = self._read()
            if held is None:
                taken = self._bucket.create(self._object, _written(ours))
            else:
                if held.owner:
                    silent_s = self._now_s() - held.renewed_s
                    if not is_dead(held.owner, silent_s):
                        return held.owner
                    self._tell_takeover(held.owner, silent_s)
                taken = self._bucket.replace(self._object, _written(ours), held.e_tag)
            if taken:
                break
        self._heart.start()
        return None

    def is_ours(self) -> bool:
        """See `Lock.is_ours`."""
        held = self._read()
        return held is not None and held.owner is not None and held.owner.token == self._token

    def wait_for(self, owner: Owner) -> None:
        """See `Lock.wait_for`."""
        while (held := self._read()) and held.owner and held.owner.token == owner.token:
            if is_dead(owner, self._now_s() - held.renewed_s):
                return
            time.sleep(POLL_S)

    def holder(self) -> Owner | None:
        """See `Lock.holder`."""
        held = self._read()
        if held is None or held.owner is None or is_dead(held.owner, self._now_s() - held.renewed_s):
            return None
        return held.owner

    def _renew(self) -> None:
        held = self._read()
        if held and held.owner and held.owner.token == self._token:
            self._bucket.replace(self._object, _written(held.owner), held.e_tag)

    def _let_go(self) -> None:
        held = self._read()
        if held and held.owner and held.owner.token == self._token:
            self._bucket.replace(self._object, FREE, held.e_tag)

    def _read(self) -> _Held | None:
        stored = self._bucket.read(self._object)
        if stored is None:
            return None
        try:
            described = json.loads(stored.data)
            described.pop("renewal", None)
            owner = Owner(**described) if described else None
        except (ValueError, TypeError, AttributeError):
            owner = Owner("unknown", "", 0, None, "", "unknown", stored.modified_s)
        return _Held(owner, stored.e_tag, stored.modified_s)

    def _now_s(self) -> float:
        """Returns the time by the service's clock, to the second, since the machines' clocks differ."""
        name = f"{self._folder}/clock-{self._token}"
        self._bucket.write(name, secrets.token_bytes(8))
        written = self._bucket.read(name)
        self._bucket.remove([name])
        return written.modified_s if written else time.time()


def _written(owner: Owner) -> bytes:
    """Returns what the object holds; each renewal differs from the one before, and so does its tag."""
    return json.dumps({**asdict(owner), "renewal": secrets.token_hex(8)}).encode()
