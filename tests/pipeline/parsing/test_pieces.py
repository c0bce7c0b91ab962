"""pipeline.parsing.pieces: pieces hold the file's trees in any layout, and errors name the file's lines."""

import gzip
from itertools import chain
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.parsing.pieces import cut
from pipeline.parsing.trees import read_trees
from pipeline.text import lines

ONE_A_LINE = "".join(f"(S (NP (NN a{i})) (VP (VB é)))\n" for i in range(11))
LAYOUTS = {
    "one a line": ONE_A_LINE,
    "blank lines": "\n\n" + ONE_A_LINE.replace("\n", "\n\n"),
    "over several lines": ONE_A_LINE.replace(" ", "\n  "),
    "one line": ONE_A_LINE.replace("\n", " ").strip(),
    "two a line": ONE_A_LINE.replace("(S (NP (NN a1))", "(S (NP (NN a1)) (X (NN c))) (S").replace("1)\n(S", "1) (S"),
    "lines end within trees": ONE_A_LINE.replace("\n", " ").replace(" (VP", "\n(VP"),
    "traces": ONE_A_LINE + "(S (-NONE- *))\n",
    "none": "",
}


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 18])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pieces_hold_the_trees_of_the_file(
    layout: str, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tree is read once, in order, with its line, plain or gzip. All pieces but the last have full size."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "silver"
    for content in (LAYOUTS[layout].encode(), gzip.compress(LAYOUTS[layout].encode())):
        path.write_bytes(content)
        whole = list(read_trees(path))
        for every in (1, 2, 3, 11, 100):
            pieces = [list(piece.read()) for piece in cut(path, every, tmp_path / "copy")]
            assert list(chain.from_iterable(pieces)) == whole
            if layout == "traces":
                assert len(pieces) == 1
            else:
                assert {len(piece) for piece in pieces[:-1]} <= {every}
                assert len(pieces) == 1 + len(whole) // every


@pytest.mark.parametrize("number", [0, 1, 4, 5, 10])
@pytest.mark.parametrize("wrong", ["(S (NP (NN a)))) ", "(S (NP (NN a)) ", "word ", "(S a b)", "(S (NN \udcff))"])
def test_errors_name_the_line_of_the_file(wrong: str, number: int, tmp_path: Path) -> None:
    """A mistake at a cut or within a piece has the same message as when the file is read whole."""
    path = tmp_path / "silver"
    trees = ONE_A_LINE.splitlines(keepends=True)
    path.write_text("".join([*trees[:number], wrong, *trees[number:]]), errors="surrogateescape")
    with pytest.raises(UserError) as whole:
        list(read_trees(path))
    assert f"silver, line {number + 1}" in str(whole.value) or "not closed" in str(whole.value)
    with pytest.raises(UserError) as in_pieces:
        list(chain.from_iterable(piece.read() for piece in cut(path, 5, tmp_path / "copy")))
    assert str(in_pieces.value) == str(whole.value)
