"""pipeline.corpora.multi30k on the published files, from a folder and from a server on loopback."""

import gzip
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.corpora.multi30k import Multi30kSettings, published, read
from pipeline.errors import UserError
from pipeline.store.artifact import Context
from pipeline.text.lines import read_lines, write_lines
from tests.support.range_server import serving


@pytest.fixture
def served(tmp_path: Path, data: Path) -> Iterator[tuple[Path, str]]:
    """A folder with the published files that are available, and its address."""
    folder = tmp_path / "served"
    shutil.copytree(data / "multi30k", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    with serving(folder) as server:
        yield folder, server.url


@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_folder_becomes_a_corpus(here: Context, data: Path, target: str) -> None:
    """Sizes are the published ones, the main test set comes first and the text is copied unchanged."""
    corpus = read(here, Multi30kSettings(target=target, data=data / "multi30k"))
    assert corpus.languages == ("en", target)
    assert {split: sum(s.pairs for s in corpus.shards(split)) for split in corpus.splits} == {
        "train": 29000,
        "dev": 1014,
        "test_2016_flickr": 1000,
    }
    original = gzip.decompress((data / "multi30k" / f"val.{target}.gz").read_bytes())
    assert corpus.shards("dev")[0].target.read_bytes() == original


def test_identity_follows_content_not_path(tmp_path: Path, data: Path) -> None:
    """A copy elsewhere has the same fingerprint, an edited line another; languages differ."""
    copy = tmp_path / "copy"
    shutil.copytree(data / "multi30k", copy, copy_function=shutil.copyfile)
    original = Multi30kSettings(data=data / "multi30k").identity()
    assert Multi30kSettings(data=copy).identity() == original
    assert Multi30kSettings(target="fr", data=copy).identity() != original
    write_lines(copy / "val.en.gz", ["edited", *list(read_lines(copy / "val.en.gz"))[1:]])
    assert Multi30kSettings(data=copy).identity() != original


def test_edited_files_and_more_test_sets_are_used(
    here: Context, served: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    """An unpacked file is preferred, an edited packed file causes a warning, and half a test set is skipped."""
    folder, _ = served
    write_lines(folder / "train.en", read_lines(folder / "train.en.gz"))
    write_lines(folder / "val.en.gz", ["edited", *list(read_lines(folder / "val.en.gz"))[1:]])
    for name in ("test_b.en", "test_b.de", "test_a.en", "test_a.de", "test_half.en"):
        write_lines(folder / name, ["a sentence"])
    with caplog.at_level(logging.WARNING):
        corpus = read(here, Multi30kSettings(data=folder))
    assert corpus.splits == ["train", "dev", "test_2016_flickr", "test_a", "test_b"]
    assert next(read_lines(corpus.shards("dev")[0].source)) == "edited"
    assert [record.args[0].name for record in caplog.records] == ["val.en.gz"]


def test_download_checks_and_reads(here: Context, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server gives the same corpus as a folder, and no download stays in the artifact."""
    folder, url = served
    for name in list(published()):  # the 2017 files are not among the tests' data
        if not (folder / name).exists():
            monkeypatch.delitem(published(), name)
    corpus = read(here, Multi30kSettings(base_url=url))
    assert list(read_lines(corpus.shards("train")[0].source)) == list(read_lines(folder / "train.en.gz"))
    assert sorted(path.name for path in here.folder.iterdir()) == ["corpus.json", "dev", "test_2016_flickr", "train"]


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("*", "neither train.en.gz nor train.en"),
        ("*.de.gz", "neither train.de.gz"),
        ("test_2016*", "neither test_2016"),
    ],
)
def test_missing_files_are_named(tmp_path: Path, parallel_text: Path, remove: str, message: str) -> None:
    """The first missing file is reported before the stage starts."""
    folder = shutil.copytree(parallel_text / "multi30k", tmp_path / "text", copy_function=shutil.copyfile)
    folder.chmod(0o755)
    for path in folder.glob(remove):
        path.unlink()
    with pytest.raises(UserError, match=message):
        Multi30kSettings(data=folder).identity()


def test_a_tampered_download_is_refused(here: Context, served: tuple[Path, str]) -> None:
    """One changed byte stops the stage before anything is read."""
    folder, url = served
    content = bytearray((folder / "train.en.gz").read_bytes())
    content[5000] ^= 1
    (folder / "train.en.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"train.en.gz: it is not the file expected"):
        read(here, Multi30kSettings(base_url=url))
    assert list(here.folder.iterdir()) == []
