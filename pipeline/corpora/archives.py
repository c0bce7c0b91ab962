"""Parallel text out of published tar archives: downloaded once, checked, single members streamed out.

Archives are gigabytes, so downloads outlive the stage that asks for them: they lie in a folder that is kept, where an
interrupted one is continued and where other stages, other commands and other hosts find them. Nothing of an archive
but the members asked for reaches the disk.
"""

import gzip
import logging
import secrets
import shutil
import tarfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated

from pydantic import StringConstraints

from pipeline.corpora.download import fetch, mismatch
from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.artifact import Context
from pipeline.store.locks import Lock, wait_for
from pipeline.text.aligned import content_sha256
from pipeline.text.lines import GZIP_MAGIC

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
POLL_S = 1.0
RATE_S = 10.0
"""The rate of downloads is told over so long."""

Checksum = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")]


class Archive(Settings):
    """A published tar archive, compressed or not, and the two members that are each other's translation."""

    path: Annotated[str, StringConstraints(pattern=r"^([\w-][\w.-]*/)*[\w-][\w.-]*$")]
    """Below the address of a server, and in the folder of downloads, e.g. "wmt13/training-parallel-europarl-v7.tgz"."""
    source: str
    target: str
    size_bytes: int | None = None
    checksum: Checksum | None = None
    """None: not published. What is found at first is kept in a file beside it and demanded ever after."""

    @property
    def name(self) -> str:
        """Of the file."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Origin:
    """Where archives come from."""

    servers: tuple[str, ...]
    """Addresses, the first tried first."""
    data: Path | None
    """Folder that has them already, flat or with the server's folders; None: download."""
    downloads: Path
    """Folder where downloads are kept, and the checksums found; laid out as a server is."""

    def check(self, archives: Sequence[Archive]) -> None:
        """Raises UserError where `data` lacks some of them, or the disk has no room for the downloads."""
        if self.data is not None:
            missing = [archive.path for archive in archives if self.on_disk(archive) is None]
            if missing:
                raise UserError(
                    f"--data {self.data} has no {', '.join(missing)}; put the official archives there, with or "
                    "without these folders, or leave --data out to download them"
                )
            return
        there = {archive: _bytes_there(self.downloads / archive.path) for archive in archives}
        missing_bytes = sum(max((archive.size_bytes or 0) - have, 0) for archive, have in there.items())
        disk = next(folder for folder in (self.downloads, *self.downloads.parents) if folder.exists())
        if missing_bytes > (free_bytes := shutil.disk_usage(disk).free):
            raise UserError(
                f"the archives need {missing_bytes / 1e9:.1f} GB more and the disk of {self.downloads} has "
                f"{free_bytes / 1e9:.1f} GB free; free some space, or choose another store"
            )

    def record(self, archive: Archive) -> Path:
        """Where the sha256 of an archive is kept, if none is published."""
        return self.downloads / f"{archive.path}.sha256"

    def on_disk(self, archive: Archive) -> Path | None:
        """Where in `data` an archive lies."""
        candidates = [] if self.data is None else [self.data / archive.path, self.data / archive.name]
        return next((path for path in candidates if path.is_file()), None)


@dataclass(frozen=True)
class Members:
    """The two files taken out of an archive."""

    source: Path
    target: Path
    archive_bytes: int
    archive_sha256: str


class DamagedError(UserError):
    """An archive cannot be read to its end."""


def take_out(archive: Archive, origin: Origin, folder: Path) -> Members:
    """The archive's two members, in `folder` under their own names.

    Raises UserError where the archive cannot be had, is not the one expected or damaged, or lacks a member. A download
    that is damaged is fetched once more.
    """
    record, again = origin.record(archive), False
    known = archive.checksum or _kept_checksum(record)
    while True:
        path = _obtain(archive, origin, known)
        try:
            source, target = _stream_out(path, (archive.source, archive.target), folder, to_the_end=known is None)
            break
        except DamagedError as error:
            if again or known or origin.data is not None:
                raise
            log.warning("%s; it is downloaded again", error)
            path.unlink(missing_ok=True)
            again = True
    kind, _, digest = (known or "").partition(":")
    sha256 = digest if kind == "sha256" else content_sha256(path)
    if known is None:
        _keep_checksum(record, sha256, archive.name)
    return Members(source, target, path.stat().st_size, sha256)


@contextmanager
def downloads_told(context: Context, archives: Sequence[Archive], origin: Origin) -> Iterator[None]:
    """While the body runs, in whichever processes, and at its end, the stage's progress: megabytes there, their rate.

    Read from the files, so those that another command downloads count too.
    """
    if origin.data is not None:
        yield
        return
    ended = threading.Event()
    begun = time.monotonic(), sum(_bytes_there(origin.downloads / archive.path) for archive in archives)
    arguments = context, archives, origin.downloads, begun, ended
    watch = threading.Thread(target=_tell_downloads, args=arguments, daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _obtain(archive: Archive, origin: Origin, checksum: str | None) -> Path:
    """The archive, of the right size and checksum as far as they are known. Raises UserError."""
    differs = "" if archive.checksum else f"; if its publisher has changed it, remove {origin.record(archive)}"
    if origin.data is not None:
        path = origin.on_disk(archive) or origin.data / archive.name
        if wrong := mismatch(path, archive.size_bytes, checksum):
            raise UserError(f"{path} is not the published archive ({wrong}); get it again{differs}")
        return path
    path = origin.downloads / archive.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with Lock(path, f"download {archive.name}") as lock:
        while owner := lock.take():
            wait_for(lock.path, owner)
        if path.exists() and (wrong := mismatch(path, archive.size_bytes, checksum)):
            log.warning("%s was changed since it was downloaded (%s); it is downloaded again", path, wrong)
            path.unlink()
        if not path.exists():
            fetch(
                [server.rstrip("/") + "/" + archive.path for server in origin.servers],
                path,
                size_bytes=archive.size_bytes,
                checksum=checksum,
                otherwise="check the network, name a mirror (base_url, mirrors), or pass --data DIR with the archives"
                + differs,
            )
    return path


def _stream_out(path: Path, names: tuple[str, str], folder: Path, to_the_end: bool) -> list[Path]:
    """Copies members to `folder`, in one pass forward; `to_the_end` reads all there is, up to gzip's checksums.

    Raises UserError where one is missing, or any member on the way would lie outside the folder it is unpacked in.
    """
    found: dict[str, Path] = {}
    try:
        # tarfile's own mode "r|gz" does not look at gzip's checksum.
        with _unzipped(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                _check_inside(member, path)
                name = PurePosixPath(member.name).as_posix()
                if name in names:
                    found[name] = folder / Path(name).name
                    _copy(archive.extractfile(member) if member.isreg() else None, found[name], f"{path}: {name}")
                if len(found) == len(names) and not to_the_end:
                    break
            if to_the_end:
                _read_through(file)
                for path_of_member in found.values():
                    with _unzipped(path_of_member) as content:
                        _read_through(content)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedError(f"{path} is damaged ({error}); get it again") from None
    if missing := [name for name in names if name not in found]:
        raise UserError(f"{path} has no member {' and no '.join(missing)}; it is not the official archive")
    return [found[name] for name in names]


def _check_inside(member: tarfile.TarInfo, archive: Path) -> None:
    """Refuses what tarfile's data filter refuses, which Python has from 3.11.4 on only.

    Files are named by us in any case: this tells a forged archive from the official one.
    """
    for name in (member.name, *([member.linkname] if member.islnk() or member.issym() else [])):
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise UserError(
                f"{archive} is refused: its member {member.name} leads to {name}, outside the folder, or is absolute; "
                "it is not the official archive"
            )


@contextmanager
def _unzipped(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, those inside where it is gzip."""
    with path.open("rb") as raw:
        if raw.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
            with gzip.GzipFile(fileobj=raw, mode="rb") as unzipped:
                yield unzipped  # type: ignore[misc]
        else:
            yield raw


def _read_through(file: IO[bytes]) -> None:
    while file.read(BLOCK_BYTES):
        pass


def _copy(content: IO[bytes] | None, path: Path, name: str) -> None:
    if content is None:
        raise UserError(f"{name} is no plain file; it is not the official archive")
    with content, path.open("wb") as file:
        shutil.copyfileobj(content, file, BLOCK_BYTES)


def _kept_checksum(record: Path) -> str | None:
    try:
        return "sha256:" + record.read_text(encoding="utf-8").split()[0]
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, IndexError):
        raise UserError(f"{record} holds no sha256; remove it") from None


def _keep_checksum(record: Path, sha256: str, name: str) -> None:
    """As `sha256sum` writes it and `sha256sum -c` reads it."""
    record.parent.mkdir(parents=True, exist_ok=True)
    aside = record.with_name(f".{record.name}.{secrets.token_hex(4)}")
    aside.write_text(f"{sha256}  {name}\n", encoding="utf-8")
    aside.replace(record)


def _tell_downloads(
    context: Context, archives: Sequence[Archive], downloads: Path, begun: tuple[float, int], ended: threading.Event
) -> None:
    """`begun`: when the downloads began, and the bytes there were then."""
    seen, over = deque([begun]), False
    while not over:
        over = ended.wait(POLL_S)  # what came last is told, too
        have_bytes = total_bytes = 0
        for archive in archives:
            there = _bytes_there(downloads / archive.path)
            have_bytes += there
            total_bytes += max(archive.size_bytes or 0, there)
        seen.append((time.monotonic(), have_bytes))
        while len(seen) > 2 and seen[-1][0] - seen[0][0] > RATE_S:
            seen.popleft()
        (since, then_bytes), (now, _) = seen[0], seen[-1]
        rate = (have_bytes - then_bytes) / (now - since) if now > since else 0.0
        context.progress(have_bytes / 1e6, total_bytes / 1e6, "MB", mb_s=rate / 1e6)


def _bytes_there(path: Path) -> int:
    """Of a download, finished or not."""
    for candidate in (path, path.with_name(path.name + ".part")):
        with suppress(FileNotFoundError):
            return candidate.stat().st_size
    return 0
