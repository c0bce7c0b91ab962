"""pipeline.corpora.multi30k on the published files, from a folder and from a server on loopback."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.corpora.multi30k import Multi30kSettings, published
from pipeline.errors import UserError
from pipeline.text.lines import read_lines, write_lines
from pipeline.text.normalisation import normalised
from tests.support.range_server import serving
from tests.support.read_text import read_text


@pytest.fixture
def served(tmp_path: Path, data: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "served"
    shutil.copytree(data / "multi30k", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    with serving(folder) as server:
        yield folder, server.url


@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_folder_becomes_a_corpus(here: Context, data: Path, target: str) -> None:
    text = read_text(here.folder, Multi30kSettings(target=target, data=data / "multi30k"))
    assert text.corpus.languages == ("en", target)
    assert text.corpus.pairs == 29000
    sentences = {name: held_out.load().sentences for name, held_out in text.sets.items()}
    assert sentences == {"dev": 1014, "test_2016_flickr": 1000}
    original = read_lines(data / "multi30k" / f"val.{target}.gz")
    assert list(read_lines(text.sets["dev"].references)) == list(map(normalised, original))


def test_identity_follows_content_not_path(tmp_path: Path, data: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data / "multi30k", copy, copy_function=shutil.copyfile)

    def identities(folder: Path, **fields: Any) -> dict[str, Any]:
        return {text.name: text.identity() for text in Multi30kSettings(data=folder, **fields).texts()}

    original = identities(data / "multi30k")
    assert identities(copy) == original
    assert not any(identity in original.values() for identity in identities(copy, target="fr").values())
    write_lines(copy / "val.en.gz", ["edited", *list(read_lines(copy / "val.en.gz"))[1:]])
    assert {name for name, identity in identities(copy).items() if identity != original[name]} == {"dev"}


def test_edits_and_own_test_sets(here: Context, served: tuple[Path, str], caplog: pytest.LogCaptureFixture) -> None:
    """An unpacked file is preferred, an edited packed file causes a warning, and half a test set is skipped."""
    folder, _ = served
    write_lines(folder / "train.en", read_lines(folder / "train.en.gz"))
    write_lines(folder / "val.en.gz", ["edited", *list(read_lines(folder / "val.en.gz"))[1:]])
    for name in ("test_b.en", "test_b.de", "test_a.en", "test_a.de", "test_half.en"):
        write_lines(folder / name, ["a sentence"])
    with caplog.at_level(logging.WARNING):
        text = read_text(here.folder, Multi30kSettings(data=folder))
    assert [*text.sets] == ["dev", "test_2016_flickr", "test_a", "test_b"]
    assert text.pairs("dev")[0][0] == "edited"
    assert [record.args[0].name for record in caplog.records] == ["val.en.gz"]


def test_download_checks_and_reads(here: Context, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = served
    for name in list(published()):  # the 2017 files are not among the tests' data
        if not (folder / name).exists():
            monkeypatch.delitem(published(), name)
    text = read_text(here.folder, Multi30kSettings(base_url=url))
    assert [source for source, _ in text.pairs()] == list(read_lines(folder / "train.en.gz"))
    assert sorted(path.name for path in text.corpus.folder.glob("[!.]*")) == ["00000.de", "00000.en", "corpus.json"]


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("*", "neither train.en.gz nor train.en"),
        ("*.de.gz", "neither train.de.gz"),
        ("test_2016*", "neither test_2016"),
    ],
)
def test_missing_files_are_named(tmp_path: Path, parallel_text: Path, remove: str, message: str) -> None:
    folder = shutil.copytree(parallel_text / "multi30k", tmp_path / "text", copy_function=shutil.copyfile)
    folder.chmod(0o755)
    for path in folder.glob(remove):
        path.unlink()
    with pytest.raises(UserError, match=message):
        Multi30kSettings(data=folder).texts()
