"""pipeline.corpora.wmt14 on archives with the official names and layout, from a server on loopback and a folder."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.corpora import download
from pipeline.corpora.wmt14 import PublishedSet, Wmt14Settings, archive_of, official_archives, read, read_set
from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.text.normalisation import normalised
from tests.support.contexts import new_context
from tests.support.official_archives import Pairs, checksum, settings_of, write_official
from tests.support.range_server import RangeServer, serving
from tests.support.read_text import read_text

NAMES = {
    "europarl-v7": "wmt13/training-parallel-europarl-v7.tgz",
    "commoncrawl": "wmt13/training-parallel-commoncrawl.tgz",
    "news-commentary-v9": "wmt14/training-parallel-nc-v9.tgz",
    "un": "wmt13/training-parallel-un.tgz",
    "giga-fren": "wmt10/training-giga-fren.tar",
}
Wmt14 = Callable[..., Wmt14Settings]


def some_pairs(name: str, number: int) -> Pairs:
    """Lines with the peculiarities of WMT14's files."""
    odd = [("", "leer"), ("a\r", "b\r"), ("one\u2028line", "eine\x85Zeile"), ("Same & same .", "Gleich &amp; gleich .")]
    return [*odd, *((f"{name} line {i}", f"{name} Zeile {i}") for i in range(len(odd), number))]


TRAIN = {name: some_pairs(name, number) for name, number in zip(NAMES, (40, 30, 20, 12, 15), strict=True)}
DEV, TEST = [(f"dev {i}", f"Dev {i}") for i in range(7)], [(f"test {i}", f"Test {i}") for i in range(9)]


@pytest.fixture
def official(tmp_path: Path) -> Path:
    folder = tmp_path / "official"
    write_official(folder, "de", TRAIN, DEV, TEST)
    return folder


@pytest.fixture
def server(official: Path) -> Iterator[RangeServer]:
    with serving(official) as server:
        yield server


@pytest.fixture
def settings(official: Path, server: RangeServer) -> Wmt14:
    def build(**changes: Any) -> Wmt14Settings:
        return Wmt14Settings(**settings_of(official, "de", 7, 9) | {"base_url": server.url} | changes)

    return build


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_S", 0.001)


def test_the_test_set_is_the_full_one_of_sacrebleu() -> None:
    """It has 3,003 sentences, and sacreBLEU's md5 and members. English comes from the pair's own file."""
    settings = Wmt14Settings(target="fr")
    assert (settings.test.name, settings.test.pairs) == ("wmt14/full", 3003)
    archive = archive_of(settings.test.name, "en-fr")
    assert archive.path == "wmt14/test-full.tgz"
    assert archive.source == "test-full/newstest2014-fren-src.en.sgm"
    assert archive.checksum == "md5:a8cd784e006feb32ac6f3d9ec7eb389a"
    with pytest.raises(UserError, match="sacreBLEU has no set 'wmt99'"):
        archive_of("wmt99", "en-fr")


def test_download_becomes_a_corpus(here: Context, settings: Wmt14, server: RangeServer, official: Path) -> None:
    text = read_text(here.folder, settings())
    assert text.corpus.languages == ("en", "de")
    kept = [pair for name in official_archives("de") for pair in TRAIN[name] if all(pair)]
    assert text.pairs() == [(normalised(source), normalised(target)) for source, target in kept]
    assert {name: text.pairs(name) for name in text.sets} == {"dev": DEV, "newstest2014": TEST}
    report = text.corpus.read_json("corpus.json")["report"]
    assert report["read"] == 90
    assert [shard.collection for shard in text.corpus.shards] == list(official_archives("de"))

    def file(path: str) -> dict[str, Any]:
        return {"bytes": (official / path).stat().st_size, "sha256": checksum(official / path)[len("sha256:") :]}

    assert report["archives"][NAMES["commoncrawl"]] == {"pairs": 30, **file(NAMES["commoncrawl"])}
    of_test = text.sets["newstest2014"]
    assert of_test.load().report == {"archive": "wmt14/test-full.tgz", **file("wmt14/test-full.tgz")}
    assert {p.suffix for part in (text.corpus, of_test) for p in part.folder.glob("[!.]*")} == {".json", ".en", ".de"}
    assert len(server.asked) == 5


def test_a_finished_download_is_not_repeated(here: Context, settings: Wmt14, server: RangeServer) -> None:
    read(here, settings().texts()[0], CleaningSettings())
    downloaded = here.folder.parent / "downloads" / NAMES["commoncrawl"]
    content = bytearray(downloaded.read_bytes())
    content[100] ^= 1
    downloaded.write_bytes(content)
    server.asked.clear()
    corpus = read(new_context(here.folder.parent / "again"), settings().texts()[0], CleaningSettings())
    assert [path for path, _ in server.asked] == ["/" + NAMES["commoncrawl"]]
    assert sum(s.pairs for s in corpus.shards) == 87


@pytest.mark.parametrize("flat", [False, True])
def test_archives_of_a_folder(here: Context, settings: Wmt14, server: RangeServer, official: Path, flat: bool) -> None:
    expecting = settings(data=official)
    if flat:
        for path in list(official.glob("*/*")):
            path.rename(official / path.name)
    assert sum(s.pairs for s in read(here, expecting.texts()[0], CleaningSettings()).shards) == 87
    assert server.asked == []
    assert not (here.folder.parent / "downloads").exists()


def test_a_test_set_of_another_length_is_refused(here: Context, settings: Wmt14) -> None:
    """`wmt14` instead of `wmt14/full` would have 2,737 sentences and other scores."""
    shorter = settings().test.model_copy(update={"pairs": 3003})
    with pytest.raises(UserError, match=r"test-full.tgz: .* have 9 lines instead of 3003; download the official"):
        read_set(here, settings(test=shorter).texts()[2])


def test_identity_follows_the_archives_not_their_place(settings: Wmt14, tmp_path: Path) -> None:
    original = [text.identity() for text in settings().texts()]
    elsewhere = settings(data=tmp_path, base_url="http://other/", mirrors=("http://m/",), downloads=tmp_path)
    assert [text.identity() for text in elsewhere.texts()] == original
    subset = settings(test=PublishedSet(name="wmt14", pairs=2737))
    assert [text.identity() in original for text in subset.texts()] == [True, True, False]
