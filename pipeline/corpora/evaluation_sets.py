"""WMT's evaluation sets as sacreBLEU defines them: archives with md5 and members, and their text.

Archives are downloaded like the training archives, since sacreBLEU's own download has no mirrors, cannot resume and
applies no data filter. Text is converted by sacreBLEU, so that scores are comparable.
"""

from pathlib import Path
from urllib.parse import urlsplit

from sacrebleu import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from pipeline.corpora.archives import Archive
from pipeline.errors import UserError


def archive_of(name: str, pair: str) -> Archive:
    """Returns the archive of sacreBLEU's set `name` for a language pair, e.g. "wmt14/full" and "en-de".

    Raises UserError if sacreBLEU has no such set, or not as one archive of SGML files.
    """
    dataset = DATASETS.get(name)
    urls, sums = getattr(dataset, "data", None) or [], getattr(dataset, "md5", None) or []
    if not isinstance(dataset, FakeSGMLDataset) or len(urls) != 1 or len(sums) != 1 or pair not in dataset.langpairs:
        raise UserError(f"sacreBLEU has no set {name!r} of SGML files for {pair}; choose another, e.g. wmt14/full")
    source, target = dataset.langpairs[pair][:2]
    return Archive(path=urlsplit(urls[0]).path.lstrip("/"), source=source, target=target, checksum=f"md5:{sums[0]}")


def as_text(name: str, pair: str, source: Path, target: Path) -> tuple[Path, Path]:
    """Converts two SGML files to text files in the same folder, one segment a line."""
    sides = _Unpacked(name, langpairs={pair: [source.name, target.name]}, folder=source.parent).get_files(pair)
    return Path(sides[0]), Path(sides[1])


class _Unpacked(FakeSGMLDataset):
    """A set whose SGML files are already in a folder."""

    def __init__(self, name: str, langpairs: dict[str, list[str]], folder: Path) -> None:
        super().__init__(name, langpairs=langpairs)
        self._outdir = self._rawdir = str(folder)

    def maybe_download(self) -> None:
        """Does nothing."""
