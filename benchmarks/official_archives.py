"""Writes archives of generated text (`benchmarks.synthetic`), with the names and members of WMT14's official ones."""

import gzip
import tarfile
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.synthetic import blocks
from pipeline.corpora.archives import Archive
from pipeline.corpora.wmt14 import Wmt14Settings, archive_of
from pipeline.text.aligned import cached_sha256
from workflows.engine.cluster import map_on_ray

CONFIG = "wmt14.toml"


def write_archives(folder: Path, target: Any, pairs: int) -> None:
    """Writes archives of training text, in the official proportions, and of the evaluation sets.

    CONFIG, written last, is a --config file that reads them instead of the official ones.
    """
    official = Wmt14Settings(target=target)
    counts = {
        name: official.model_copy(update={"archives": {name: archive}}).amount().train_pairs or 0
        for name, archive in official.archives.items()
    }
    calls = [
        (official.archives[name], folder, target, max(1, round(pairs * n / sum(counts.values()))), seed)
        for seed, (name, n) in enumerate(counts.items())
    ]
    sets = {"dev": official.dev, "test": official.test}
    for published in sets.values():
        calls.append((archive_of(published.name, f"en-{target}"), folder, target, published.pairs, len(calls)))
    list(map_on_ray(_write_archive, sorted(calls, key=lambda call: -call[3])))
    lines = ['profile = "wmt14"', f"corpora.en-{target}.data = {str(folder)!r}"]
    for name, (archive, *_) in zip([f"archives.{name}" for name in counts] + [*sets], calls, strict=True):
        path, key = folder / archive.path, f"corpora.en-{target}.{name}"
        if name.startswith("archives."):
            lines.append(f"{key}.size_bytes = {path.stat().st_size}")
        if archive.checksum:
            lines.append(f'{key}.checksum = "sha256:{cached_sha256(path)}"')
    (folder / CONFIG).write_text("\n".join([*lines, ""]), encoding="utf-8")


def _write_archive(archive: Archive, folder: Path, target: str, pairs: int, seed: int) -> None:
    path, names = folder / archive.path, (archive.source, archive.target)
    line_form = '<seg id="1">{}</seg>\n' if archive.source.endswith(".sgm") else "{}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as members, ExitStack() as stack:
        sides = [Path(members) / Path(name).name for name in names]
        files = [stack.enter_context(_opened(side)) for side in sides]
        for block in blocks(target, pairs, seed):
            for file, lines in zip(files, block, strict=True):
                file.write("".join(map(line_form.format, lines)).encode())
        stack.close()
        with _opened(path) as file, tarfile.open(fileobj=file, mode="w") as tar:
            for name, side in zip(names, sides, strict=True):
                tar.add(side, name)


def _opened(path: Path) -> Any:
    return gzip.open(path, "wb", compresslevel=1) if path.suffix in (".gz", ".tgz") else path.open("wb")
