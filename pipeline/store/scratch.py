"""To be deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.store.folders import temporary_folder as temporary_folder
from pipeline.store.hashes import file_sha256


@dataclass(frozen=True)
class Written:
    name: str
    size_bytes: int
    sha256: str


@dataclass
class Writing:
    paths: list[Path]
    written: list[Written] = field(default_factory=list)


@dataclass
class Scratch:
    folder: Path
    store: None = None

    def on_this_node(self, path: Path) -> Path:
        return path

    @contextmanager
    def writing(self, *names: str) -> Iterator[Writing]:
        with temporary_folder(self.folder) as folder:
            writing = Writing([folder / name for name in names])
            for path in writing.paths:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield writing
            for path in writing.paths:
                for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
                    name = file.relative_to(folder).as_posix()
                    writing.written.append(Written(name, file.stat().st_size, file_sha256(file)))
            for each in writing.written:
                (self.folder / each.name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder / each.name, self.folder / each.name)
