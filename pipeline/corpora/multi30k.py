"""Reads Multi30k task 1 (raw): 29 000 image captions, English with German or French, downloaded or from a folder.

It is the first stage of profile `multi30k`; `--data DIR` takes the files from a folder instead of the network.
"""

import logging
import tempfile
from pathlib import Path
from typing import Any, Literal

from pipeline.corpora.amount import Amount
from pipeline.corpora.download import fetch
from pipeline.errors import UserError
from pipeline.settings import AbsolutePath, Settings, not_in_fingerprint
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import content_sha256, write_corpus

log = logging.getLogger(__name__)

REPOSITORY = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
SOURCE = "en"
MAIN_TEST_SET = "test_2016_flickr"
FILES = {
    "train.en.gz": (568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de.gz": (637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "train.fr.gz": (604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
    "val.en.gz": (21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de.gz": (24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "val.fr.gz": (23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
    "test_2016_flickr.en.gz": (21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    "test_2016_flickr.de.gz": (22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    "test_2016_flickr.fr.gz": (22310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
    "test_2017_flickr.en.gz": (19138, "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074"),
    "test_2017_flickr.de.gz": (21471, "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee"),
    "test_2017_flickr.fr.gz": (20434, "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496"),
    "test_2017_mscoco.en.gz": (8844, "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58"),
    "test_2017_mscoco.de.gz": (10230, "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338"),
    "test_2017_mscoco.fr.gz": (9751, "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0"),
}
"""Size in bytes and sha256 of the published files."""
TRAIN_PAIRS, PAIR_BYTES = 29_000, 135
"""Pairs in the published training files, and UTF-8 bytes per pair, both sides with line ends, German or French."""


class Multi30kSettings(Settings):
    """The language pair, and where its files come from."""

    target: Literal["de", "fr"] = "de"
    data: AbsolutePath | None = None
    """Folder with `train.en.gz` or `train.en`, `val.*`, `test_2016_flickr.*` and other `test_*`; None to download."""
    base_url: str = not_in_fingerprint(REPOSITORY)
    """Address of the published files. Their hashes are checked, so a mirror changes nothing."""

    def identity(self) -> dict[str, Any]:
        """Depends on the content of the files, not on their paths. Raises UserError if one is missing."""
        return {"target": self.target, "files": {name: _sha256(self, names) for name, names in _splits(self).items()}}


def amount(settings: Multi30kSettings) -> Amount:
    """Returns the size of the published files, which are removed once they are read."""
    languages = (SOURCE, settings.target)
    downloads = {name: size for name, (size, _) in FILES.items() if name.split(".")[1] in languages}
    return Amount(TRAIN_PAIRS, TRAIN_PAIRS * PAIR_BYTES, {} if settings.data else downloads)


def read(context: Context, settings: Multi30kSettings) -> Corpus:
    """Reads the splits train, dev, test_2016_flickr, then the other test sets by name.

    Raises UserError if a file is missing or damaged, a download is not the published file, or the sides differ in
    length.
    """
    splits = _splits(settings)
    names = [name for sides in splits.values() for name in sides]
    with tempfile.TemporaryDirectory(dir=context.folder, prefix=".download") as downloads:
        folder = settings.data or Path(downloads)
        if settings.data is None:
            _download(names, folder, settings.base_url)
        else:
            _warn_of_edits([folder / name for name in names])
        files = {split: [(folder / source, folder / target)] for split, (source, target) in splits.items()}
        return write_corpus(context, (SOURCE, settings.target), files)


def _download(names: list[str], folder: Path, base_url: str) -> None:
    for name in names:
        size_bytes, sha256 = FILES[name]
        url = base_url.rstrip("/") + "/" + name
        advice = "check the network, or pass --data DIR with the Multi30k files"
        fetch([url], folder / name, size_bytes=size_bytes, checksum=f"sha256:{sha256}", advice=advice)


def _splits(settings: Multi30kSettings) -> dict[str, tuple[str, str]]:
    """Returns the names of the source and target file of each split, in order. Raises UserError if one is missing."""
    present = set(FILES) if settings.data is None else _names(settings.data)
    candidates = {name.split(".")[0] for name in present if name.startswith("test_")} - {MAIN_TEST_SET}
    splits = {}
    for split, stem in [("train", "train"), ("dev", "val"), *((n, n) for n in [MAIN_TEST_SET, *sorted(candidates)])]:
        sides = [_present_name(f"{stem}.{language}", present) for language in (SOURCE, settings.target)]
        if sides[0] and sides[1]:
            splits[split] = (sides[0], sides[1])
        elif split not in candidates:
            missing = f"{stem}.{settings.target if sides[0] else SOURCE}"
            raise UserError(f"{settings.data} has neither {missing}.gz nor {missing}; put the Multi30k files there")
    return splits


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError as error:
        raise UserError(f"--data {folder}: {error.strerror}; give the folder with the Multi30k files") from None


def _present_name(plain: str, present: set[str]) -> str | None:
    """Prefers the unpacked file to the packed one, since it is the one that a user edits."""
    return next((name for name in (plain, plain + ".gz") if name in present), None)


def _sha256(settings: Multi30kSettings, names: tuple[str, str]) -> list[str]:
    if settings.data is None:
        return [FILES[name][1] for name in names]
    return [content_sha256(settings.data / name) for name in names]


def _warn_of_edits(paths: list[Path]) -> None:
    for path in paths:
        if path.name in FILES and content_sha256(path) != FILES[path.name][1]:
            log.warning("%s is not the published file (its sha256 differs); using it as it is", path)
