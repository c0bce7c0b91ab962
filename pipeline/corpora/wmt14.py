"""Reads WMT14 from the official archives: the paper's 4.5 M English-German and 36 M English-French pairs (§5.1).

It is the first stage of profile `wmt14`. `--data DIR` names a folder with the archives; otherwise they are downloaded
from `base_url`, then `mirrors`, to `downloads/` in the store, where interrupted downloads are resumed and both language
pairs share archives. That folder may be deleted after the text has been read.

Pitfalls:
- The test set is all of newstest2014, 3,003 sentences: sacreBLEU's `wmt14/full`. Its `wmt14` is a subset.
- The English sides of newstest2014 differ between the language pairs, so each uses its own.
- The text stays raw: not lower-cased, and German compounds are split only by the paper's scorer.
- Duplicates are kept: the paper does not mention them.
"""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from pipeline.artifacts import Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.corpora.archives import Archive, Checksum, Origin, extract, report_downloads
from pipeline.errors import UserError
from pipeline.settings import AbsolutePath, CleaningSettings, Count, Settings, not_in_fingerprint
from pipeline.store.folders import temporary_folder
from pipeline.text.aligned import Part, parts_of, write_set
from pipeline.text.amount import Amount
from pipeline.text.cleaning import write_corpus
from pipeline.text.lines import read_pairs

STATMT = "https://www.statmt.org/"
SOURCE = "en"
TEST_SET = "newstest2014"
Wmt14Target = Literal["de", "fr"]

PAIR_BYTES = 316
"""Approximate UTF-8 bytes per pair, line ends included: 7.26 MB in the first 20,000 pairs of Europarl v7 and the 3,000
of newstest2013, English and German."""


@cache
def _published() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("wmt14.toml").read_text(encoding="utf-8"))


def official_archives(target: Wmt14Target) -> dict[str, Archive]:
    """Returns the archives of training data from English to `target`, in reading order."""
    archives = {}
    for name, entry in _published().items():
        if target in entry["pairs"]:
            fields = {key: entry.get(key) for key in ("path", "size_bytes", "checksum")}
            for side, language in (("source", SOURCE), ("target", target)):
                fields[side] = entry["members"].format(pair=f"{target}-{SOURCE}", language=language)
            archives[name] = Archive(**fields)
    return archives


class PublishedSet(Settings):
    """An evaluation set defined by sacreBLEU."""

    name: str
    """sacreBLEU's name."""
    pairs: Count
    checksum: Checksum | None = None
    """Checksum of its archive; None for sacreBLEU's md5."""


class Wmt14Source(Settings):
    """The language pair and the source of its archives."""

    target: Wmt14Target = "de"
    data: AbsolutePath | None = not_in_fingerprint(None)
    """Folder with the archives, flat or laid out like the server; None to download them."""
    base_url: str = not_in_fingerprint(STATMT)
    """Server with all archives."""
    mirrors: tuple[str, ...] = not_in_fingerprint(())
    """Servers with the same layout, tried in order if `base_url` fails."""
    downloads: AbsolutePath | None = not_in_fingerprint(None)
    """Download folder: 2 GB for EN-DE and 5 GB more for EN-FR. None: `downloads` in the store, which is on a disk
    chosen for large files and visible to every node of a cluster."""

    def origin(self, context: Context) -> Origin:
        """Returns the archives' location for a stage."""
        downloads = self.downloads or context.folder.parent / "downloads"
        return Origin(servers=(self.base_url, *self.mirrors), data=self.data, downloads=downloads)


class Wmt14Text(Wmt14Source):
    """The training text's archives."""

    archives: dict[str, Archive] = Field(default_factory=lambda given: official_archives(given["target"]), min_length=1)
    """A checksum identifies an archive, so its location is not fingerprinted."""

    def amount(self) -> Amount:
        """Returns pairs and text size, if all archives are official, and download sizes."""
        are_official = self.archives.items() <= official_archives(self.target).items()
        pairs = sum(_published()[name]["pairs"][self.target] for name in self.archives) if are_official else None
        archives = [] if self.data else list(self.archives.values())
        return Amount(pairs, pairs and pairs * PAIR_BYTES, {archive.path: archive.size_bytes for archive in archives})


class Wmt14Set(Wmt14Source):
    """The dev set or a test set."""

    name: str
    published: PublishedSet


class Wmt14Settings(Wmt14Text):
    """The training data and the evaluation sets."""

    dev: PublishedSet = PublishedSet(name="wmt13", pairs=3000)
    test: PublishedSet = PublishedSet(name="wmt14/full", pairs=3003)

    def texts(self) -> tuple[Wmt14Text, Wmt14Set, Wmt14Set]:
        """Returns the settings of training text, dev set and test set."""
        source = {name: getattr(self, name) for name in Wmt14Source.model_fields}
        return (
            Wmt14Text(**source, archives=self.archives),
            Wmt14Set(**source, name="dev", published=self.dev),
            Wmt14Set(**source, name=TEST_SET, published=self.test),
        )


def read(context: Context, settings: Wmt14Text, cleaning: CleaningSettings) -> Corpus:
    """Reads the training text, archive by archive.

    One call of `context.map` per archive extracts its members. The report has, beside the counts of cleaning,
    {"archives": {path: {"pairs", "bytes", "sha256"}}}. Raises UserError, naming archive and member, if one cannot
    be downloaded, is not the published one, or has sides of different length, and if the disk has no room for the text.
    """
    origin, languages = settings.origin(context), (SOURCE, settings.target)
    archives = list(settings.archives.values())
    origin.check(archives, context.folder, settings.amount())
    report = dict[str, Any]()
    with temporary_folder(context.folder) as folder:
        members_of = {folder / f"{i}": archive for i, archive in enumerate(archives)}
        with report_downloads(context, archives, origin):
            calls = [(archive, origin, own) for own, archive in members_of.items()]
            extracted = list(context.map(extract, calls))

        def parts() -> Iterator[Part]:
            for (name, archive), (source, target, about) in zip(settings.archives.items(), extracted, strict=True):
                pairs = 0
                for part in parts_of(name, source, target, cleaning.shard_pairs):
                    pairs += part.read
                    yield part
                _check(archive, pairs)
                report[archive.path] = {"pairs": pairs, **about}
                for path in (source, target):
                    path.unlink()

        with _naming(members_of):
            expected = settings.amount().train_pairs
            return write_corpus(context, languages, parts(), cleaning, expected=expected, report={"archives": report})


def read_set(context: Context, settings: Wmt14Set) -> EvaluationSet:
    """Reads an evaluation set; its report is {"archive", "bytes", "sha256"}. Raises UserError like `read`."""
    languages, published = (SOURCE, settings.target), settings.published
    pair = "-".join(languages)
    archive = archive_of(published.name, pair)
    if published.checksum:
        archive = archive.model_copy(update={"checksum": published.checksum})
    origin = settings.origin(context)
    origin.check([archive], context.folder, Amount())
    with temporary_folder(context.folder) as folder:
        with report_downloads(context, [archive], origin):
            source, target, about = extract(archive, origin, folder)
        with _naming({folder: archive}):
            pairs, report = read_pairs(source, target), {"archive": archive.path, **about}
            text = write_set(context, settings.name, languages, pairs, report)
    _check(archive, text.load().sentences, published.pairs)
    return text


def archive_of(name: str, pair: str) -> Archive:
    """Returns the archive of sacreBLEU's set `name` for a language pair, e.g. "wmt14/full" and "en-de".

    Raises UserError if sacreBLEU has no such set, or not as one archive of SGML files.
    """
    from sacrebleu import DATASETS  # slow to import
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    dataset = DATASETS.get(name)
    urls, sums = getattr(dataset, "data", None) or [], getattr(dataset, "md5", None) or []
    if not isinstance(dataset, FakeSGMLDataset) or len(urls) != 1 or len(sums) != 1 or pair not in dataset.langpairs:
        raise UserError(f"sacreBLEU has no set {name!r} of SGML files for {pair}; choose another, e.g. wmt14/full")
    source, target = dataset.langpairs[pair][:2]
    return Archive(path=urlsplit(urls[0]).path.lstrip("/"), source=source, target=target, checksum=f"md5:{sums[0]}")


@contextmanager
def _naming(members_of: Mapping[Path, Archive]) -> Iterator[None]:
    """Names archive and member in an error, since the extracted files will be gone, with a remedy."""
    try:
        yield
    except UserError as error:
        message = str(error)
        for folder, archive in members_of.items():
            message = message.replace(f"{folder}/", f"{archive.name}, member ")
        raise UserError(message.replace("convert the file", "download the official archive")) from None


def _check(archive: Archive, pairs: int, expected: int | None = None) -> None:
    """Raises UserError if an archive had no lines, or not the expected number."""
    if not pairs or expected not in (None, pairs):
        instead = f" instead of {expected}" if expected else ""
        raise UserError(
            f"{archive.name}: {archive.source} and its translation have {pairs} lines{instead}; "
            "download the official archive"
        )
