"""The build folder of an artifact and its inputs, as the stage's processes on any node see them.

    with build.opened() as folder:          # in a long-running process on any node
        ...                                 # write folder/checkpoints/00000050
        build.keep("checkpoints/00000050")
    build.collect()                         # in the stage, after these processes

On a disk that all nodes share, this is the folder itself. With a store in a bucket, each node has its own, and the
bucket follows: `keep` takes an append-only file, or an artifact, whose manifest is uploaded last: if the manifest is
there, all is.

A process that was cut off may have lost its lock, and then its files, to another one: `check` raises LockLostError, and
nothing is written or removed.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pipeline.errors import BucketError, LockLostError
from pipeline.store.folders import MANIFEST, aside_path, inside, remove
from pipeline.store.locks import Lock

if TYPE_CHECKING:  # so that serving a model needs no object-store client
    from pipeline.store.bucket import Bucket
    from pipeline.store.store import Store

logger = logging.getLogger(__name__)


@dataclass
class Build:
    """A build folder. Picklable."""

    folder: Path
    store: Store | None = field(default=None, kw_only=True)
    """The store in a bucket. None: all nodes share the disk, so nothing is copied."""
    is_ours: Callable[[], bool] | None = field(default=None, kw_only=True)
    """Whether the stage still holds the artifact's lock; picklable. None: there is no lock."""
    _checked_s: float = field(default=-math.inf, kw_only=True)
    """Time of the last check, on this machine's clock."""
    _pending: list[str] = field(default_factory=list, kw_only=True)
    """Parts whose upload has failed so far."""

    @classmethod
    def of(cls, store: Store, name: str, lock: Lock | None = None) -> Self:
        """Returns an artifact's build folder, valid while the caller holds its `lock`."""
        is_ours = partial(store.is_held, name, lock.line) if lock else None
        return cls(store.scratch(name), store=store if store.uri else None, is_ours=is_ours)

    def __getstate__(self) -> dict[str, Any]:
        """Drops the time of the last check, which other machines' clocks do not share."""
        return {**self.__dict__, "_checked_s": -math.inf}

    def check(self, every_s: float = 0.0) -> None:
        """Raises LockLostError if another process has taken over; checks at most once in `every_s` seconds.

        If the lock cannot be read, the previous answer stands.
        """
        if self.is_ours is None or time.monotonic() - self._checked_s < every_s:
            return
        with suppress(OSError):
            if not self.is_ours():
                raise LockLostError.of(self.folder)
        self._checked_s = time.monotonic()

    def input(self, folder: Path) -> Path:
        """Returns the folder on this node of an input of the stage, or of a part of one; pulls it if it is in a bucket.

        A folder of a user's stays where it is. To be called before `opened`. Raises UserError like `Store.fetch`.
        """
        if self.store is None or not folder.is_relative_to(self.folder.parent):
            return folder
        name, *within = folder.relative_to(self.folder.parent).parts
        return self.store.fetch(name).joinpath(*within)

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yields the folder on this node with all kept parts; parts kept in the body are safe after it.

        Raises BucketError if the last uploads fail.
        """
        if self.store is None:
            yield self.folder
            return
        here = self.store.artifacts / self.folder.name
        is_stage_folder = here == self.folder and here.is_dir()
        self.folder = here
        with self.store.in_use(here):
            here.mkdir(parents=True, exist_ok=True)
            self._pull(self.store.bucket, operator.lt)
            yield here
            self._upload_pending()
        if not is_stage_folder:
            shutil.rmtree(here, ignore_errors=True)

    def keep(self, part: str) -> None:
        """Uploads a file of the folder, or an artifact in it, for other nodes, replacing its earlier version.

        If the bucket does not answer, logs a warning and retries in the next call. Raises LockLostError (`check`).
        """
        self.check()
        if self.store is None:
            return
        self._pending = [*(owed for owed in self._pending if owed != part), part]
        try:
            self._upload_pending()
        except BucketError as error:
            logger.warning("%s is only on this machine (%s)", part, error)

    def drop(self, part: str) -> None:
        """Removes a kept file or artifact. Raises LockLostError (`check`)."""
        self.check()
        if part in self._pending:
            self._pending.remove(part)
        if self.store:
            with suppress(BucketError):  # one more checkpoint is there
                self.store.bucket.remove_folder(f"{self._place}/{part}")

    def set_aside(self, parts: Iterable[str]) -> Path:
        """Moves artifacts to a new folder beside this one, and returns its path. Raises LockLostError (`check`)."""
        aside = aside_path(self.folder)
        for part in parts:
            self.drop(part)
            (aside / part).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.folder / part, aside / part)
        return aside

    def collect(self) -> None:
        """Downloads all kept parts into the stage's folder. Raises BucketError if the bucket does not answer."""
        if self.store is None:
            return
        bucket = self.store.bucket
        kinds = {name.partition("/")[0] for name in self._kept_bytes(bucket) if "/" in name}
        for artifact in [folder for kind in kinds for folder in self.folder.glob(f"{kind}/*")]:
            manifest = artifact / MANIFEST
            kept = bucket.read(f"{self._place}/{manifest.relative_to(self.folder).as_posix()}")
            if not (kept and manifest.is_file() and manifest.read_bytes() == kept.data):
                remove(artifact)
        self._pull(bucket, operator.ne)

    @property
    def _place(self) -> str:
        return f"store/{self.folder.name}"

    def _pull(self, bucket: Bucket, differs: Callable[[int, int], bool]) -> None:
        """Downloads kept artifacts that are missing here, and files whose local size `differs`."""
        kept_bytes = self._kept_bytes(bucket)
        for folder in sorted({name.rpartition("/")[0] for name in kept_bytes if "/" in name}):
            manifest = f"{folder}/{MANIFEST}"
            if manifest not in kept_bytes:
                logger.warning("skipping %s/%s/%s, which is incomplete", bucket.uri, self._place, folder)
            elif not (self.folder / manifest).is_file():
                names = [name for name in kept_bytes if name.startswith(f"{folder}/") and name != manifest]
                self._download(bucket, names)
                self._download(bucket, [manifest])
        files = {name: self.folder / name for name in kept_bytes if "/" not in name}
        here_bytes = {name: path.stat().st_size if path.is_file() else -1 for name, path in files.items()}
        self._download(bucket, [name for name in files if differs(here_bytes[name], kept_bytes[name])])

    def _kept_bytes(self, bucket: Bucket) -> dict[str, int]:
        """Returns the sizes of kept files by name. Raises BucketError for a name that leads elsewhere."""
        sizes_bytes = bucket.sizes_bytes(self._place)
        try:
            return {inside(name): size for name, size in sizes_bytes.items()}
        except ValueError as error:
            raise BucketError(f"{bucket.uri}/{self._place}: {error}; remove that object") from None

    def _download(self, bucket: Bucket, names: list[str]) -> None:
        bucket.download({f"{self._place}/{name}": self.folder / name for name in names})

    def _upload_pending(self) -> None:
        """Uploads the pending parts."""
        while self.store and self._pending:
            path = self.folder / self._pending[0]
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            names = {f"{self._place}/{file.relative_to(self.folder).as_posix()}": file for file in files}
            manifest = {name: names.pop(name) for name in [*names] if names[name] == path / MANIFEST}
            self.store.bucket.upload(names)
            self.store.bucket.upload(manifest)
            del self._pending[0]
