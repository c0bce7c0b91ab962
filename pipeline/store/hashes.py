"""Hashes of files."""

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """Returns the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
