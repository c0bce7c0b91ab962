"""Extracts parallel text from published tar archives, downloaded once and verified.

Archives are gigabytes, so downloads outlive the stage: they are kept in a folder where interrupted ones are resumed and
other stages, commands and hosts find them. Only the requested members are written to disk.
"""

import gzip
import logging
import shutil
import tarfile
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any

from pydantic import Field, StringConstraints

from pipeline.context import Context
from pipeline.corpora.download import fetch, mismatch
from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.folders import Inside
from pipeline.store.locks import FileLock
from pipeline.store.removal import size_bytes
from pipeline.text.aligned import cached_sha256
from pipeline.text.amount import Amount
from pipeline.text.lines import open_unzipped

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
POLL_S = 1.0
"""Seconds between progress reports of downloads."""

Checksum = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")]


class Archive(Settings):
    """A published tar archive, compressed or not, and its two parallel members."""

    path: Annotated[str, StringConstraints(pattern=r"^([\w-][\w.-]*/)*[\w-][\w.-]*$")]
    """Path on the server and in the download folder, e.g. "wmt13/training-parallel-europarl-v7.tgz"."""
    source: Inside
    target: Inside
    size_bytes: int | None = Field(None, ge=1, le=10**15)
    checksum: Checksum | None = None
    """None if unpublished: the archive is then checked by its size, and to its end by gzip's own sums."""

    @property
    def name(self) -> str:
        """File name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Origin:
    """The servers and folders of archives."""

    servers: tuple[str, ...]
    """Server addresses, in order of preference."""
    data: Path | None
    """Folder with the archives, flat or laid out like the server; None to download them."""
    downloads: Path
    """Folder of downloads, laid out like the server."""

    def check(self, archives: Sequence[Archive], folder: Path, amount: Amount) -> None:
        """Raises UserError if `data` lacks an archive, or a disk has no room for downloads or for text in `folder`."""
        extracted_bytes = (amount.text_bytes or 0) * bool(archives)  # until it is read
        left_bytes = max(amount.kept_bytes - size_bytes(folder), 0)  # beside the shards of an earlier attempt
        if self.data is not None:
            missing = [archive.path for archive in archives if self.on_disk(archive) is None]
            if missing:
                raise UserError(
                    f"--data {self.data} has no {', '.join(missing)}; put the official archives there, with or "
                    "without these folders, or drop --data to download them"
                )
            archives = []
        missing_bytes = sum(
            max((archive.size_bytes or 0) - _downloaded_bytes(self.downloads / archive.path), 0) for archive in archives
        )
        needs_bytes = Counter[int]()
        for place, needed in ((folder, left_bytes + extracted_bytes), (self.downloads, missing_bytes)):
            disk = next(parent for parent in (place, *place.parents) if parent.exists())
            needs_bytes[device := disk.stat().st_dev] += round(needed)
            if needs_bytes[device] > (free_bytes := shutil.disk_usage(disk).free):
                raise UserError(
                    f"the text needs {needs_bytes[device] / 1e9:.1f} GB, but the disk of {place} has only "
                    f"{free_bytes / 1e9:.1f} GB free; free some space, or choose another store"
                )

    def on_disk(self, archive: Archive) -> Path | None:
        """Returns an archive's path in `data`, or None if it is missing."""
        candidates = [] if self.data is None else [self.data / archive.path, self.data / archive.name]
        return next((path for path in candidates if path.is_file()), None)


def extract(archive: Archive, origin: Origin, folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Extracts the archive's two members into `folder`, which is created if missing; returns them and a report.

    The report is {"bytes", "sha256"} of the archive. Raises UserError if that cannot be downloaded, is damaged or not
    the expected one, or lacks a member.
    """
    path = _obtain(archive, origin)
    folder.mkdir(exist_ok=True)
    source, target = _stream_out(path, archive, folder)
    kind, _, digest = (archive.checksum or "").partition(":")
    sha256 = digest if kind == "sha256" else cached_sha256(path)
    return source, target, {"bytes": path.stat().st_size, "sha256": sha256}


@contextmanager
def report_downloads(context: Context, archives: Sequence[Archive], origin: Origin) -> Iterator[None]:
    """Reports downloaded megabytes as the stage's progress while the body runs.

    Counts file sizes, so downloads by other processes and commands are included. Raises LockLostError after the body if
    another process has taken over the stage.
    """
    ended = threading.Event()

    def watch() -> None:
        over = False
        while not over:
            over = ended.wait(POLL_S)  # reports the last bytes, too
            with suppress(OSError):  # a file server may fail briefly
                have_bytes = [_downloaded_bytes(origin.downloads / archive.path) for archive in archives]
                sizes = zip(archives, have_bytes, strict=True)
                total_bytes = sum(max(archive.size_bytes or 0, have) for archive, have in sizes)
                context.progress(sum(have_bytes) / 1e6, total_bytes / 1e6, "MB")

    with ThreadPoolExecutor(max_workers=1) as watcher:
        watching = watcher.submit(watch) if origin.data is None else None
        try:
            yield
        finally:
            ended.set()
    if watching:
        watching.result()


def _obtain(archive: Archive, origin: Origin) -> Path:
    """Returns the archive's path, with size and checksum verified if known. Raises UserError."""
    if origin.data is not None:
        path = origin.on_disk(archive) or origin.data / archive.name
        if wrong := mismatch(path, archive.size_bytes, archive.checksum):
            raise UserError(f"{path} is not the published archive ({wrong}); download it again")
        return path
    path = origin.downloads / archive.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, f"download {archive.name}") as lock:
        lock.take_in_turn()
        if path.exists() and (wrong := mismatch(path, archive.size_bytes, archive.checksum)):
            log.warning("%s has changed since it was downloaded (%s); downloading it again", path, wrong)
            path.unlink()
        if not path.exists():
            fetch(
                [server.rstrip("/") + "/" + archive.path for server in origin.servers],
                path,
                size_bytes=archive.size_bytes,
                checksum=archive.checksum,
                advice="check the network, name a mirror (base_url, mirrors), or pass --data DIR with the archives",
            )
    return path


def _stream_out(path: Path, archive: Archive, folder: Path) -> list[Path]:
    """Copies the two members to `folder` in one pass, to the archive's end if only gzip's checksum can verify it.

    Raises UserError if a member is missing, or if one on the way would be unpacked outside the folder.
    """
    copies: dict[str, Path] = {}
    names = archive.source, archive.target
    try:
        # tarfile's own mode "r|gz" ignores gzip's checksum.
        with open_unzipped(path) as file, tarfile.open(fileobj=file, mode="r|") as members:
            for member in members:
                tarfile.data_filter(member, str(folder))  # detects forged archives; copies get names of our own
                name = PurePosixPath(member.name).as_posix()
                if name in names:
                    copies[name] = folder / Path(name).name
                    _copy(members.extractfile(member) if member.isreg() else None, copies[name], f"{path}: {name}")
                if len(copies) == len(names) and archive.checksum:
                    break
            while not archive.checksum and file.read(BLOCK_BYTES):
                pass
    except tarfile.FilterError as error:
        raise UserError(f"{path} is unsafe ({error}); it is not the official archive") from None
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is damaged ({error}); move it elsewhere and download it again") from None
    if missing := [name for name in names if name not in copies]:
        raise UserError(f"{path} has no member {' and no '.join(missing)}; it is not the official archive")
    return [copies[name] for name in names]


def _copy(content: IO[bytes] | None, path: Path, name: str) -> None:
    if content is None:
        raise UserError(f"{name} is not a regular file; it is not the official archive")
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file, BLOCK_BYTES)


def _downloaded_bytes(path: Path) -> int:
    """Returns the size of a download, complete or not."""
    for candidate in (path, path.with_name(path.name + ".part")):
        with suppress(FileNotFoundError):
            return candidate.stat().st_size
    return 0
