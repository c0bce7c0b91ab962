"""What identifies the project's own source: a digest, so that cheap artifacts are remade when it changes, and git's.

Where the source is told, so are the versions of the LIBRARIES that results may depend on.
"""

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("model", "pipeline", "workflows")
LIBRARIES = ("torch", "ray", "pyarrow", "sentencepiece", "sacrebleu", "sacremoses")
SUFFIXES = {".py", ".j2", ".js", ".css"}


class Commit(NamedTuple):
    """What a git working tree was checked out from."""

    sha1: str
    is_dirty: bool
    """Says whether a file that git tracks differs from the commit."""


@cache
def source_sha256(root: Path = ROOT) -> str:
    """Returns the hexadecimal sha256 of the modules' and templates' names and contents, computed once per process."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def source_commit(root: Path = ROOT) -> Commit | None:
    """Returns the commit of the source, or None where `root` is no git working tree, as when it was installed."""
    try:
        # An installed package may lie within the working tree of something else.
        if Path(_git(root, "rev-parse", "--show-toplevel")) != root.resolve():
            return None
        return Commit(_git(root, "rev-parse", "HEAD"), bool(_git(root, "status", "--porcelain", "-uno")))
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
