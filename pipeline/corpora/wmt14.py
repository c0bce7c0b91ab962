"""Reads WMT14 from the official archives: the paper's 4.5 M English-German and 36 M English-French pairs (§5.1).

It is the first stage of profile `wmt14`. `--data DIR` names a folder that has the archives; otherwise they are
downloaded from `base_url`, then from `mirrors`, to `downloads/` in the store, where an interrupted download is resumed
and where both language pairs find the archives they share. The folder may be removed once the text is read.

Pitfalls that are avoided here:
- The test set is newstest2014 in full, 3003 sentences: sacreBLEU's `wmt14/full`. Its `wmt14` is a subset.
- The English sides of newstest2014 differ between the two pairs, so each pair takes its own.
- The text stays raw: it is not lower-cased, and German compounds are split only by the paper's scorer.
- Duplicates are kept, as in the paper; blank lines too, until `pipeline.text.cleaning` sees both sides.
"""

import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pipeline.corpora.amount import Amount
from pipeline.corpora.archives import Archive, Checksum, Origin, extract, report_downloads
from pipeline.errors import UserError
from pipeline.settings import AbsolutePath, Count, Settings, not_in_fingerprint
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import SHARD_PAIRS, move_shards, write_shards
from pipeline.text.lines import Errors, read_pairs

STATMT = "https://www.statmt.org/"
SOURCE = "en"
TEST_SET = "newstest2014"
Wmt14Target = Literal["de", "fr"]

PAIR_BYTES = 316
"""Approximate UTF-8 bytes per pair, both sides with line ends: 7.26 MB in the first 20 000 pairs of Europarl v7 and the
3 000 of newstest2013, English and German."""


@cache
def _published() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("wmt14.toml").read_text(encoding="utf-8"))


def official_archives(target: Wmt14Target) -> dict[str, Archive]:
    """Returns the archives of the training data from English to `target`, in reading order."""
    archives = {}
    for name, described in _published().items():
        if target in described["pairs"]:
            fields = {key: described.get(key) for key in ("path", "size_bytes", "checksum")}
            for side, language in (("source", SOURCE), ("target", target)):
                fields[side] = described["members"].format(pair=f"{target}-{SOURCE}", language=language)
            archives[name] = Archive(**fields)
    return archives


class EvaluationSet(Settings):
    """An evaluation set that sacreBLEU defines."""

    name: str
    """sacreBLEU's name of the set."""
    pairs: Count
    checksum: Checksum | None = None
    """Checksum of its archive; None for sacreBLEU's md5."""


class Wmt14Settings(Settings):
    """The language pair, and where its archives come from."""

    target: Wmt14Target = "de"
    archives: dict[str, Archive] = Field(
        default_factory=lambda fields: official_archives(fields["target"]), min_length=1
    )
    """The training data. A checksum identifies an archive, so its location has no part in the stage's identity."""
    invalid: Literal["error", "drop"] = "error"
    """For training pairs that are not UTF-8; with `drop`, cleaning drops and counts them."""
    dev: EvaluationSet = EvaluationSet(name="wmt13", pairs=3000)
    test: EvaluationSet = EvaluationSet(name="wmt14/full", pairs=3003)
    data: AbsolutePath | None = not_in_fingerprint(None)
    """Folder with the archives, either flat or with the server's folders; None to download them."""
    base_url: str = not_in_fingerprint(STATMT)
    """Server that has all archives."""
    mirrors: tuple[str, ...] = not_in_fingerprint(())
    """Servers with the same folders, tried in order if `base_url` fails."""
    downloads: AbsolutePath | None = not_in_fingerprint(None)
    """Folder where downloads are kept, 2 GB for EN-DE and 5 GB more for EN-FR; None for `downloads` in the store, which
    is on the disk chosen for large files and visible to every node of a cluster."""


def amount(settings: Wmt14Settings) -> Amount:
    """Returns pairs and text size, if all archives are official, and the sizes of the downloads."""
    official, published = official_archives(settings.target), _published()
    known = all(name in official and archive.path == official[name].path for name, archive in settings.archives.items())
    pairs = sum(published[name]["pairs"][settings.target] for name in settings.archives) if known else None
    estimated_bytes = {described["path"]: described.get("estimated_bytes") for described in published.values()}
    archives = [] if settings.data else list(settings.archives.values())
    return Amount(
        pairs,
        pairs and pairs * PAIR_BYTES,
        {archive.path: archive.size_bytes or estimated_bytes.get(archive.path) for archive in archives},
    )


@dataclass(frozen=True)
class Part:
    """An archive and the split it becomes part of."""

    split: str
    archive: Archive
    evaluation: EvaluationSet | None = None
    collection: str = ""
    """Name of the archive in the settings; empty for evaluation sets."""


def read(context: Context, settings: Wmt14Settings) -> Corpus:
    """Reads the splits train (archive after archive), dev and newstest2014, one call of `context.map` per archive.

    The report is {"read": pairs of each split, "archives": {path: {"split", "pairs", "bytes", "sha256"}}}. Raises
    UserError, naming archive and member, if one cannot be obtained, is not the published one, or has sides of different
    length.
    """
    corpus, languages = Corpus(context.folder), (SOURCE, settings.target)
    origin = Origin(
        servers=(settings.base_url, *settings.mirrors),
        data=settings.data,
        downloads=settings.downloads or context.folder.parent / "downloads",
    )
    parts = _parts(settings)
    archives = [part.archive for part in parts]
    origin.check(archives)
    errors = "surrogateescape" if settings.invalid == "drop" else "strict"
    calls = [(part, languages, origin, str(corpus.parts / f"{i:02d}"), errors) for i, part in enumerate(parts)]
    with report_downloads(context, archives, origin):
        reports = list(context.map(read_part, calls))
    splits: dict[str, list[int]] = {"train": [], "dev": [], TEST_SET: []}
    collections: list[str] = []
    described = {}
    for (part, _, _, folder, _), report in zip(calls, reports, strict=True):
        sizes = report.pop("shards")
        move_shards(Corpus(Path(folder)), corpus, part.split, languages, sizes, splits[part.split])
        if part.split == "train":
            collections += [part.collection] * len(sizes)
        described[part.archive.path] = {"split": part.split, "pairs": sum(sizes), **report}
    shutil.rmtree(corpus.parts)
    read_pairs_of = {split: sum(sizes) for split, sizes in splits.items()}
    corpus.describe(languages, splits, {"read": read_pairs_of, "archives": described}, collections)
    return corpus


def read_part(part: Part, languages: tuple[str, str], origin: Origin, folder: str, errors: Errors) -> dict[str, Any]:
    """Reads an archive into the shards of a split of the corpus in `folder`; `errors` is for training text.

    Returns {"shards": pairs in each, "bytes": size of the archive, "sha256": hash of the archive}.
    """
    archive, corpus = part.archive, Corpus(Path(folder))
    shutil.rmtree(corpus.folder, ignore_errors=True)  # left by an attempt that was killed
    corpus.folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=corpus.folder, prefix=".members") as members_folder:
        members = extract(archive, origin, Path(members_folder))
        files = members.source, members.target
        strictness: Errors = "strict" if part.evaluation else errors
        if part.evaluation:
            from pipeline.corpora.evaluation_sets import as_text

            files = as_text(part.evaluation.name, "-".join(languages), *files)
        try:
            shards = write_shards(corpus, part.split, languages, read_pairs(*files, strictness), SHARD_PAIRS)
        except UserError as error:  # the files it names will be gone
            dropping = f"""drop such pairs: --set 'corpora.{"-".join(languages)}.invalid="drop"'"""
            message = str(error).replace(f"{members_folder}/", f"{archive.name}, member ")
            raise UserError(message.replace("convert the file", dropping)) from None
    pairs, expected = sum(shards), part.evaluation.pairs if part.evaluation else None
    if not pairs or expected not in (None, pairs):
        raise UserError(
            f"{archive.name}: {archive.source} and its translation have {pairs} lines"
            + (f" instead of {expected}" if expected else "")
            + "; get the official archive"
        )
    return {"shards": shards, "bytes": members.archive_bytes, "sha256": members.archive_sha256}


def _parts(settings: Wmt14Settings) -> list[Part]:
    """Lists evaluation sets first: they are small, so network problems show at once."""
    from pipeline.corpora.evaluation_sets import archive_of  # sacreBLEU imports slowly, and profiles do not need it

    parts = []
    for split, evaluation in (("dev", settings.dev), (TEST_SET, settings.test)):
        archive = archive_of(evaluation.name, f"{SOURCE}-{settings.target}")
        if evaluation.checksum:
            archive = archive.model_copy(update={"checksum": evaluation.checksum})
        parts.append(Part(split, archive, evaluation))
    return [*parts, *(Part("train", archive, collection=name) for name, archive in settings.archives.items())]
