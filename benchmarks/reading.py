"""Counts the bytes that a command reads from a folder's files: pages in the cache after it that were not there before.

python -m benchmarks.reading STORE python -m workflows.reproduce_table2 --store STORE

This includes other processes' reads and the kernel's readahead, and excludes files that the command writes. Needs Linux
and util-linux's `fincore`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path


def measure(folder: Path, command: list[str]) -> dict[str, object]:
    """Drops the folder's files from the cache, runs the command and returns the counts."""
    os.sync()
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before, started_s = cached_bytes(files), time.perf_counter()
    status, seconds = subprocess.run(command, check=False).returncode, time.perf_counter() - started_s
    kept = [path for path, written_ns in files.items() if path.exists() and path.stat().st_mtime_ns == written_ns]
    read = {str(path.relative_to(folder)): n - before[path] for path, n in cached_bytes(kept).items()}
    largest = sorted(((n, name) for name, n in read.items() if n > 0), reverse=True)
    return {
        "exit_status": status,
        "seconds": seconds,
        "size_mb": sum(path.stat().st_size for path in kept) / 1e6,
        "read_mb": sum(n for n, _ in largest) / 1e6,
        "most_read_mb": {name: n / 1e6 for n, name in largest[:10]},
    }


def cached_bytes(paths: Iterable[Path]) -> dict[Path, int]:
    """Returns the cached bytes of each file."""
    words = ["fincore", "--json", "--bytes", "--output", "res,file", *map(str, paths)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {Path(row["file"]): int(row["res"]) for row in json.loads(shown)["fincore"]}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2:]), indent=2))
