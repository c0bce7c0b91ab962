"""pipeline.text.pieces: copying in pieces equals copying line by line, with the same errors."""

import gzip
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.store.artifact import Context, map_here
from pipeline.store.artifacts import Corpus
from pipeline.text import aligned, lines, pieces
from pipeline.text.aligned import CorpusWriter, copy_corpus, copy_files, write_shards
from pipeline.text.lines import Errors, read_pairs, write_lines

SIGNS = [b"a", "é".encode(), "\u2028\r".encode(), pieces.MARK]
INVALID = [*lines.UTF_16, b"\xe9"]


def _text(signs: list[bytes]) -> st.SearchStrategy[bytes]:
    """Draws up to nine lines of up to seven signs, the last with or without an end."""
    text = st.lists(st.lists(st.sampled_from(signs), max_size=7).map(b"".join), max_size=9).map(b"\n".join)
    return st.builds(bytes.__add__, text, st.sampled_from([b"", b"\n"]))


TEXT = st.one_of(_text(SIGNS), _text(SIGNS + INVALID))
LANGUAGES = ("en", "de")


@given(
    st.one_of(TEXT.map(lambda text: (text, text.replace(b"a", b"bb"))), st.tuples(TEXT, TEXT)),
    st.tuples(st.sampled_from(["plain", "gzip", "cut gzip"]), st.sampled_from(["plain", "gzip"])),
    st.sampled_from(["strict", "surrogateescape"]),
    st.sampled_from([6, 64]),
)
@example((pieces.MARK + b"a\nb", pieces.MARK * 2 + b"c\nd\n"), ("plain", "gzip"), "strict", 64)
@example((b"a\nb\nc\n" + pieces.MARK + b"d", b"a\n\n\nd"), ("gzip", "plain"), "strict", 64)
@example((b"a\nb\xe9", b"a\nb\n"), ("plain", "plain"), "strict", 64)
def test_pieces_are_what_lines_are(
    tmp_path_factory: pytest.TempPathFactory, texts: Any, kinds: Any, errors: Errors, block_bytes: int
) -> None:
    """Shards or errors are identical for byte order marks, damage, long lines and any other text."""
    folder = tmp_path_factory.mktemp("any")
    sides = [folder / "source", folder / "target"]
    for path, text, kind in zip(sides, texts, kinds, strict=True):
        content = text if kind == "plain" else gzip.compress(text)
        path.write_bytes(content[:-5] if kind == "cut gzip" else content)

    def by_lines(corpus: Corpus) -> list[int]:
        return write_shards(corpus, LANGUAGES, read_pairs(*sides, errors), 3)

    def by_pieces(corpus: Corpus) -> list[int]:
        writer = CorpusWriter(Context(corpus.folder), LANGUAGES)
        copy_files(Context(corpus.folder), writer, [("all", sides[0], sides[1])], folder, errors)
        return list(writer.finish({}).load().shards)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(aligned, "SHARD_PAIRS", 3)
        patched.setattr(lines, "MAX_LINE_BYTES", 2 * block_bytes)
        for module in (lines, pieces):
            patched.setattr(module, "BLOCK_BYTES", block_bytes)
        assert _outcome(by_pieces, folder / "pieces") == _outcome(by_lines, folder / "lines")


def _outcome(copy: Callable[[Corpus], list[int]], folder: Path) -> tuple[list[int], list[bytes]] | str:
    folder.mkdir()
    try:
        sizes = copy(Corpus(folder))
    except UserError as error:
        return str(error)
    return sizes, [(folder / f"{i:05d}.{language}").read_bytes() for i in range(len(sizes)) for language in LANGUAGES]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_large_file_is_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """Each task copies its own piece only. The error for a bad line in the second piece has its number in the file."""
    calls: list[str] = []

    def counted(function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> Iterator[Any]:
        calls.extend(function.__name__ for _ in arguments)
        return map_here(function, arguments)

    monkeypatch.setattr(aligned, "SHARD_PAIRS", 100)
    sides = tmp_path / f"x.en{suffix}", tmp_path / f"x.de{suffix}"
    for path in sides:
        write_lines(path, map(str, range(350)))
    (tmp_path / "corpus").mkdir()
    corpus = copy_corpus(Context(tmp_path / "corpus", map=counted), LANGUAGES, [sides])
    assert [shard.pairs for shard in corpus.shards] == [100, 100, 100, 50]
    assert calls == ["pieces_of"] * 2 + ["write_part"] * 4
    assert {path.suffix for path in corpus.folder.iterdir()} == {".json", ".en", ".de"}
    text = "".join(f"{i}\n" for i in range(350)).encode().replace(b"\n120\n", b"\n\xff\n")
    sides[1].write_bytes(gzip.compress(text) if suffix else text)
    (tmp_path / "bad").mkdir()
    with pytest.raises(UserError, match=rf"/x\.de{suffix}, line 121: not UTF-8 \(invalid start byte, byte 1 of the"):
        copy_corpus(Context(tmp_path / "bad"), LANGUAGES, [sides])


def test_cutting_streams(tmp_path: Path) -> None:
    """Memory grows neither with the file nor with its lines: a single line of 64 MB is cut within 12 MB."""
    (tmp_path / "x").write_bytes(bytes(1 << 26))
    tracemalloc.start()
    try:
        assert pieces.cut(tmp_path / "x", 100) == [1, 0, 1 << 26]
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    """After the change, pieces would no longer begin at lines."""
    write_lines(tmp_path / "x", ["one", "two", "three"])
    first, _ = pieces.pieces_of(tmp_path / "x", 2, tmp_path / "copies" / "0")
    write_lines(tmp_path / "x", ["another", "text"])
    with pytest.raises(UserError, match="x changed while it was read; run the same command again"):
        pieces.copy_piece(first, first, "strict", [tmp_path / "a", tmp_path / "b"])
