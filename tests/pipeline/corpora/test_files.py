"""pipeline.corpora.files: a user's own text from a TOML file, and mistakes in such a file."""

import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from pipeline.text import amount
from pipeline.text.lines import read_lines, read_pairs, write_lines
from pipeline.text.normalisation import normalised
from tests.support.read_text import read_text
from tests.support.tiny_text import NOISE

TOML = """\
source = "en"
target = "de"
train = [{source = "train.en.gz", target = "train.de.gz"}, {source = "more.en", target = "more.de"}]
dev = {source = "dev.en", target = "dev.de"}
[test.second]
source = "test.en"
target = "test.de"
[test.a]
source = "test.en"
target = "other.de"
"""
HEAD = 'source = "en"\ntarget = "de"\n'
SPLITS = 'train = {source = "more.en", target = "more.de"}\ndev = {source = "dev.en", target = "dev.de"}\n'
TEST = '[test.t]\nsource = "test.en"\ntarget = "test.de"\n'


@pytest.fixture
def folder(tmp_path: Path, parallel_text: Path) -> Path:
    """Excerpts of Europarl and newstest2013, or of generated text, and `corpus.toml`."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for language in ("en", "de"):
        europarl = list(read_lines(parallel_text / "europarl_sample" / f"train.{language}.gz"))
        write_lines(folder / f"train.{language}.gz", europarl[:250])
        write_lines(folder / f"more.{language}", europarl[250:270])
        news = list(read_lines(parallel_text / "newstest2013" / f"newstest2013.{language}.gz"))
        write_lines(folder / f"dev.{language}", ["", *news[:30]])
        write_lines(folder / f"test.{language}", news[30:50])
    write_lines(folder / "other.de", news[50:70])
    (folder / "corpus.toml").write_text(TOML)
    return folder


@pytest.mark.parametrize("name", ["parts", "wip", "manifest", "a.txt", "b", "c_"])
def test_a_test_set_has_any_name(name: str, folder: Path, here: Context) -> None:
    """A test set may be called like the stage's own working folders."""
    (folder / "corpus.toml").write_text(TOML.replace("[test.a]", f'[test."{name}"]'))
    text = read_text(here.folder, FilesSettings.load(folder / "corpus.toml"))
    assert [*text.sets] == ["dev", "second", name]
    assert len(text.pairs(name)) == 20


def test_text_is_copied_aligned_into_shards(folder: Path, here: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training files keep their order, each in its own shards. Blank dev lines stay. A full disk is noticed."""
    text = read_text(here.folder, FilesSettings.load(folder / "corpus.toml"), shard_pairs=100, max_ratio=100)
    assert [*text.sets] == ["dev", "second", "a"]
    shards = [(shard.pairs, shard.collection) for shard in text.corpus.shards]
    assert shards == [*((pairs, "train.en.gz") for pairs in (100, 100, 50)), (20, "more.en")]
    for side, language in enumerate(("en", "de")):
        assert [pair[side] for pair in text.pairs()] == [
            normalised(line)
            for name in (f"train.{language}.gz", f"more.{language}")
            for line in read_lines(folder / name)
        ]
    assert list(read_lines(text.sets["dev"].source)) == list(read_lines(folder / "dev.en"))
    monkeypatch.setattr(amount, "TOKENS_A_PAIR", 10**15)
    with pytest.raises(UserError, match=r"the text needs \d+\.0 GB, but the disk of .*large"):
        read_text(here.folder / "large", FilesSettings.load(folder / "corpus.toml"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_description_may_be_written_by_powershell(folder: Path, encoding: str) -> None:
    (folder / "other.toml").write_bytes(TOML.replace("\n", "\r\n").encode(encoding))
    assert FilesSettings.load(folder / "other.toml") == FilesSettings.load(folder / "corpus.toml")


def test_evaluation_sets_keep_every_line(folder: Path, here: Context) -> None:
    """Blank, overlong and lopsided pairs stay; all lines are normalised. An empty set is an error."""
    odd = [*NOISE, (" x\u2028y\r", "z\r"), ("so\xadft", "u\u0308")]
    for side, language in enumerate(("en", "de")):
        write_lines(folder / f"dev.{language}", [pair[side] for pair in odd])
    text = read_text(here.folder, FilesSettings.load(folder / "corpus.toml"))
    assert text.pairs("dev") == [(normalised(a), normalised(b)) for a, b in odd]
    for language in ("en", "de"):
        write_lines(folder / f"dev.{language}", [])
    with pytest.raises(UserError, match=r"no pair in .*dev.en and .*dev.de; at least one is needed"):
        read_text(here.folder / "empty", FilesSettings.load(folder / "corpus.toml"))


def test_a_bad_line_costs_a_pair_or_ends_a_set(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One in millions of lines does not end the run: pairs are dropped and counted, and the first is named."""
    bad = {2: b"caf\xe9", 7: b"a" * (3 << 20), 9: b"\xff" * (1 << 20), 11: b"\xff"}
    for name in ("more.en", "dev.en"):
        lines = (folder / name).read_bytes().split(b"\n")
        (folder / name).write_bytes(b"\n".join(bad.get(number, line) for number, line in enumerate(lines, 1)))
        if name == "more.en":
            text = read_text(tmp_path / "read", FilesSettings.load(folder / "corpus.toml"), max_ratio=100)
    report = text.corpus.load().report
    assert (report["read"], report["kept"]) == (270, 266)
    assert report["collections"]["more.en"]["dropped"] == {"blank": 0, "too_long": 2, "ratio": 0, "invalid": 2}
    assert [record.getMessage().partition("more.en, ")[2] for record in caplog.records] == [
        "line 2: not UTF-8 (unexpected end of data, byte 4 of the line); pairs with such lines are dropped",
        "line 7: longer than 1048576 bytes; pairs with such lines are dropped",
    ]
    kept = [line for number, line in enumerate(read_lines(folder / "more.de"), 1) if number not in bad]
    assert [target for _, target in text.pairs()[250:]] == list(map(normalised, kept))
    with pytest.raises(UserError, match=r"dev\.en, line 2: not UTF-8 .*; convert the file"):
        read_text(tmp_path / "again", FilesSettings.load(folder / "corpus.toml"))


def test_one_file_may_have_both_columns(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For any split, compressed or not: text and size are those of two files, but not the identity."""
    (folder / "two.toml").write_text(HEAD + SPLITS + TEST)
    write_lines(folder / "test.de", ["<p>"] * 20)  # to warn of
    (folder / "one.toml").write_text(HEAD + 'train = "more.tsv"\ndev = "dev.tsv.xz"\ntest.t = "test.tsv"\n')
    for name, pack in (("more.tsv", bytes), ("dev.tsv.xz", lzma.compress), ("test.tsv", bytes)):
        pairs = read_pairs(*(folder / f"{name.partition('.')[0]}.{language}" for language in ("en", "de")))
        (folder / name).write_bytes(pack("".join(f"{one}\t{other}\n" for one, other in pairs).encode()))
    both = [FilesSettings.load(folder / name) for name in ("two.toml", "one.toml")]
    two, one = (read_text(tmp_path / str(i), settings) for i, settings in enumerate(both))
    assert [one.pairs(name) for name in ("train", "dev", "t")] == [two.pairs(name) for name in ("train", "dev", "t")]
    assert (both[0].amount(), len(caplog.messages)) == (both[1].amount(), 2)
    assert not any(a.identity() == b.identity() for a, b in zip(*(settings.texts() for settings in both), strict=True))
    (folder / "test.tsv").write_text("a\tb\na\t b\tc\n")
    with pytest.raises(UserError, match=r"test\.tsv, line 2: 2 tabs instead of one"):
        read_text(tmp_path / "again", both[1])


def test_identity_follows_content_not_path(folder: Path, tmp_path: Path) -> None:
    def identities(folder: Path) -> list[dict[str, Any]]:
        return [text.identity() for text in FilesSettings.load(folder / "corpus.toml").texts()]

    original = identities(folder)
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    assert identities(moved) == original
    first, second, third = TOML.partition("[test.second]")[0], TOML.partition("[test.second]")[2], "[test.second]"
    head, _, tail = second.partition("[test.a]")
    (moved / "corpus.toml").write_text(f"{first}[test.a]{tail}{third}{head}")
    train, dev, second_set, set_a = original
    assert identities(moved) == [train, dev, set_a, second_set]
    (folder / "test.de").write_bytes((folder / "test.de").read_bytes().replace(b"e", b"x", 1))
    assert [one == other for one, other in zip(identities(folder), original, strict=True)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ("train.en.gz", "dev.en", r"train and dev have the same text \(.*train\.en\.gz and .*dev\.en\)"),
        ("more.de", "test.en", r"train and second have the same text \(.*more\.de and .*test\.en\)"),
        ("dev.de", "other.de", r"dev and a have the same text \(.*dev\.de and .*other\.de\)"),
    ],
)
@pytest.mark.parametrize("is_copy", [True, False])
def test_a_file_of_two_splits_is_refused(folder: Path, one: str, other: str, message: str, is_copy: bool) -> None:
    """By its content, whatever its name, and on either side. Test sets may share a file."""
    FilesSettings.load(folder / "corpus.toml").texts()
    (folder / other).unlink()
    shutil.copyfile(folder / one, folder / other) if is_copy else (folder / other).symlink_to(folder / one)
    with pytest.raises(UserError, match=message):
        FilesSettings.load(folder / "corpus.toml").texts()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("source = \n", r"not valid TOML: .*line 1"),
        (HEAD + SPLITS, r"corpus.toml: test: Field required"),
        (HEAD + SPLITS + TEST.replace("[test.t]", "[test.train]"), "name train is reserved"),
        (HEAD + SPLITS + TEST.replace("[test.t]", '[test."corpus.json"]'), "name corpus.json is reserved"),
        *((HEAD + SPLITS + TEST.replace("[test.t]", f'[test."t{end}"]'), "should match pattern") for end in ".-"),
        (HEAD.replace('"de"', '"json"') + SPLITS + TEST, "target: .*name json is reserved"),
        (HEAD.replace("de", "en") + SPLITS + TEST, "source en and target en are one language"),
        (HEAD.replace('"de"', '"en-de"') + SPLITS + TEST, "en-de is a pair of languages; name one for source and one"),
        (HEAD + SPLITS.replace("more.de", "../mine/more.en") + TEST, r"more.en, line 1: 0 tabs .* or name two files"),
        (HEAD + SPLITS.replace("more.de", "nothing.de") + TEST, r"names .*nothing.de, which is not a file"),
    ],
)
def test_a_wrong_description_is_reported_in_one_line(folder: Path, toml: str, message: str) -> None:
    (folder / "corpus.toml").write_text(toml)
    with pytest.raises(UserError, match=message) as caught:
        FilesSettings.load(folder / "corpus.toml")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
