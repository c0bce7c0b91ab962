"""pipeline.parsing.trees: reading any layout of brackets, cleaning as for EVALB, and errors with file and line."""

import gzip
import re
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given

from pipeline.errors import UserError
from pipeline.parsing.trees import Tree, bracketed, cleaned, drawn, parse, read_trees, trees_in, words_of
from tests.support.random_trees import trees

MANY_LINES = """\
( (S
    (NP-SBJ-1 (NNP Ms.) (NNP Haag) )
    (VP (VBZ plays)
      (NP (-NONE- *-1) (NNP Elianti) ))
    (. .) ))
(TOP (FRAG (-LRB- -LRB-) (NN x)
 (-RRB- -RRB-))) (S1 (NP (NN y)))
"""


def test_trees_over_lines_and_several_a_line(tmp_path: Path) -> None:
    """Each tree has the line in which it begins, in any layout, plain or gzip."""
    (tmp_path / "plain").write_text(MANY_LINES)
    (tmp_path / "packed").write_bytes(gzip.compress(MANY_LINES.replace("\n", "\r\n").encode()))
    for name in ("plain", "packed"):
        placed_trees = list(read_trees(tmp_path / name))
        assert [placed.line for placed in placed_trees] == [1, 6, 7]
        assert [bracketed(placed.tree) for placed in placed_trees] == [
            "( (S (NP-SBJ-1 (NNP Ms.) (NNP Haag)) (VP (VBZ plays) (NP (-NONE- *-1) (NNP Elianti))) (. .)))",
            "(TOP (FRAG (-LRB- -LRB-) (NN x) (-RRB- -RRB-)))",
            "(S1 (NP (NN y)))",
        ]
        assert placed_trees[1].place == f"{tmp_path / name}, line 6"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP (NN a)))\n(S\n(NP (NN a))", "line 3: the bracket opened in line 2 is not closed"),
        ("(S (NP (NN a))))", "line 1: a closing bracket has no opening one"),
        ("(S\n((NN a)))", "line 2: a bracket inside a tree has no label"),
        ("(S (NN a))\n\nword (S (NN a))", "line 3: 'word' stands outside a tree"),
        ("(S (NP))", "line 1: (NP) contains neither a word nor a constituent"),
        ("(NP (NN a b))", "line 1: the word 'b' is not alone in its bracket"),
        ("(NP a (NN b))", "line 1: a constituent stands beside the word 'a'"),
    ],
)
def test_errors_name_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        list(trees_in(text.split("\n"), "a.mrg"))
    assert str(caught.value) == f"a.mrg, {message}; correct the tree"


def test_an_open_bracket_does_not_swallow_the_file() -> None:
    lines = iter(["(S (NP (NN a)", *repeat("(S (NN a))", 65_536)])
    with pytest.raises(UserError, match=r"line 9363: the bracket opened in line 1 is not closed within 65536 tokens"):
        list(trees_in(lines, "a.mrg"))
    assert len(list(lines)) > 65_536 / 2


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("( (S (NP-SBJ (NNP A)) (VP (VBD was) (NP (-NONE- *-1))) (. .)))", "(S (NP (NNP A)) (VP (VBD was)) (. .))"),
        ("(TOP (S (SBAR (-NONE- 0) (S (-NONE- *T*-1))) (X (NN a))))", "(S (X (NN a)))"),
        ("( (NP (-LRB- -LRB-) (NN a)) (. .))", "(TOP (NP (-LRB- -LRB-) (NN a)) (. .))"),
        ("(S (TOP (NN a)) (ROOT (NN b) (NN c)))", "(S (TOP (NN a)) (ROOT (NN b) (NN c)))"),
        ("( (S (NP (-NONE- *))))", None),
    ],
)
def test_cleaning(tree: str, expected: str | None) -> None:
    result = cleaned(parse(tree))
    assert (result and bracketed(result)) == expected


@given(trees())
def test_writing_and_reading_are_inverse(tree: Tree) -> None:
    text = bracketed(tree)
    assert parse(text) == tree
    assert parse(text.replace(" ", "\n")) == tree
    assert words_of(tree) == re.findall(r"([^()\s]+)\)", text)


def test_trees_of_any_depth_are_drawn() -> None:
    tree = parse("(S (NP (DT the) (NN man)) (VP (VBZ runs)))")
    assert drawn(tree).split("\n") == ["S", "├─ NP", "│  ├─ DT the", "│  └─ NN man", "└─ VP", "   └─ VBZ runs"]
    for _ in range(3000):
        tree = Tree("X", [tree])
    assert drawn(tree).endswith("VBZ runs")
