"""A digest of the project's own source, so that artifacts that are cheap to make are remade when the code changes."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGES = ("model", "pipeline", "workflows")
SUFFIXES = {".py", ".j2"}


@cache
def source_sha256(root: Path = Path(__file__).parents[2]) -> str:
    """Returns the hexadecimal sha256 of the modules' and templates' names and contents, computed once per process."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
