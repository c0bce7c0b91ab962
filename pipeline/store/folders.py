"""Folders of a store, and names within them."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import AfterValidator

from pipeline.errors import UserError

MANIFEST = "manifest.json"
BUILD_PREFIX = ".making-"
"""Prefix of the temporary folder in which an artifact is built."""
HIDDEN = ".temporary-"
"""Prefix of folders in it that never become part of the artifact."""
ASIDE_PREFIX = ".aside-"
"""Prefix of folders of damaged files, which are neither used nor deleted."""
PULLING_PREFIX = ".pulling-"
"""Prefix of the temporary folder of an artifact that is being pulled from a bucket."""
RECORDS_PREFIX = ".records-"
"""Prefix of the folder with an artifact's small files, pulled from a bucket."""
_PART = r"[^./\0-\x1f\x7f][^/\0-\x1f\x7f]*"


def inside(name: str) -> str:
    """Returns a name, from a file, an archive or a server, that stays below the folder it is joined to.

    Raises ValueError if it is absolute, or has an empty part, a hidden one or `..`.
    """
    if not re.fullmatch(f"{_PART}(/{_PART})*", name):
        raise ValueError(f"{name!r} names no file below a folder (absolute, hidden, or with an empty part or ..)")
    return name


Inside = Annotated[str, AfterValidator(inside)]


def build_folder(target: Path) -> Path:
    """Returns the temporary folder in which an artifact is built before it is published as `target`."""
    return target.with_name(f"{BUILD_PREFIX}{target.name}")


def aside_path(folder: Path) -> Path:
    """Returns an unused path beside a folder, for setting it or parts of it aside."""
    return folder.with_name(f"{ASIDE_PREFIX}{folder.name.removeprefix(BUILD_PREFIX)}-{secrets.token_hex(4)}")


def set_aside(folder: Path) -> Path:
    """Renames an unusable folder, in place, and returns its new path; `aiayn clean` lists it."""
    aside = aside_path(folder)
    os.rename(folder, aside)
    return aside


def remove(folder: Path) -> None:
    """Deletes a folder or file, if it is there. Raises UserError if a process uses it, or the file system denies it."""
    try:
        folder.unlink() if folder.is_file() else shutil.rmtree(folder)
    except FileNotFoundError:  # deleted by another process
        pass
    except OSError as error:
        why = f"({error}); end the process that uses it, or move it elsewhere"
        raise UserError(f"{folder} cannot be deleted {why}") from None


def forgetful_mount(folder: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Returns the mount of a folder if it is NFS's and remembers for up to a minute what it did not find."""
    fields = [line.split() for line in mounts.read_text().splitlines()] if mounts.is_file() else []
    above = [field for field in fields if folder.resolve().is_relative_to(field[1])]
    _, place, kind, options, *_ = max(above, key=lambda field: len(field[1]), default=("", "", "", ""))
    return place if kind.startswith("nfs") and "lookupcache=pos" not in options else None


@contextmanager
def temporary_folder(within: Path) -> Iterator[Path]:
    """Yields a HIDDEN folder within a build folder; a file server may retain files that a process still has open."""
    with TemporaryDirectory(dir=within, prefix=HIDDEN, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
