import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.corpora.wmt14 import PublishedSet, Wmt14Target, official_archives

Pairs = Sequence[tuple[str, str]]


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Writes a tar archive, compressed if its name ends in .tgz, with the members' names unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def text(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode(errors="surrogateescape")


def sgml(lines: Sequence[str]) -> bytes:
    segments = [f'<seg id="{number}">{line}</seg>' for number, line in enumerate(lines, 1)]
    document = ['<srcset setid="newstest" srclang="any">', '<doc docid="a" genre="news" origlang="en">', "<p>"]
    return text([*document, *segments, "</p>", "</doc>", "</srcset>"])


def write_official(folder: Path, target: Wmt14Target, train: Mapping[str, Pairs], dev: Pairs, test: Pairs) -> None:
    """All archives of a pair, with the other pair's members and other text, too; `train` by the archive's name."""
    other = "fr" if target == "de" else "de"
    for name, archive in official_archives(target).items():
        members = {}
        for member, lines in zip((archive.source, archive.target), zip(*train[name], strict=True), strict=True):
            members[member.replace(f"{target}-en.", f"{other}-en.") + ".other"] = b"another language\n"
            members[member] = gzip.compress(text(lines)) if member.endswith(".gz") else text(lines)
        write_archive(folder / archive.path, members)
    of_2014 = f"test-full/newstest2014-{'deen' if target == 'de' else 'fren'}"
    for path, pairs, names in (
        ("wmt13/test.tgz", dev, ("test/newstest2013-src.en.sgm", f"test/newstest2013-src.{target}.sgm")),
        ("wmt14/test-full.tgz", test, (f"{of_2014}-src.en.sgm", f"{of_2014}-ref.{target}.sgm")),
    ):
        sides = zip(*pairs, strict=True)
        write_archive(folder / path, {name: sgml(lines) for name, lines in zip(names, sides, strict=True)})


def settings_of(folder: Path, target: Wmt14Target, dev_pairs: int, test_pairs: int) -> dict[str, Any]:
    """Fields of Wmt14Settings for `write_official`'s archives; checksums that nobody published are absent."""
    archives = {}
    for name, archive in official_archives(target).items():
        size_bytes = (folder / archive.path).stat().st_size
        changes: dict[str, Any] = {"size_bytes": size_bytes}
        if archive.checksum:
            changes["checksum"] = checksum(folder / archive.path)
        archives[name] = archive.model_copy(update=changes)
    return {
        "target": target,
        "archives": archives,
        "dev": PublishedSet(name="wmt13", pairs=dev_pairs, checksum=checksum(folder / "wmt13/test.tgz")),
        "test": PublishedSet(name="wmt14/full", pairs=test_pairs, checksum=checksum(folder / "wmt14/test-full.tgz")),
    }


def checksum(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
