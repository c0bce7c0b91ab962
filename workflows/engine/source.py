"""The project's own source as part of an identity: what is cheap to make again is made again when the code changes."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGES = ("model", "pipeline", "workflows")
SUFFIXES = {".py", ".j2"}


@cache
def source_sha256(root: Path = Path(__file__).parents[2]) -> str:
    """Hexadecimal sha256 over names and contents of the project's modules and templates, as this process found them."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
