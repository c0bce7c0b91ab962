"""Trees rebuilt from a parser's output, right-branching trees, and their scores."""

from pathlib import Path

import pytest

from pipeline.artifacts import EvaluationSet, Hypotheses
from pipeline.evaluation.parses import Parses, rebuild_parses, right_branching
from pipeline.evaluation.tree_scores import score_parses
from pipeline.parsing.linearisation import linearise
from pipeline.parsing.trees import bracketed, parse, preterminals, read_trees, words_of
from pipeline.text.lines import write_lines
from tests.support.contexts import new_context
from tests.support.parallel_text import corpus_of, set_of
from tests.support.tiny_parser import make_tree_set

GOLD = [
    "(S (NP (DT The) (NN man)) (VP (VBZ hears) (NP (DT the) (NN dog))) (. .))",
    "(S (NP (PRP We)) (VP (VBD slept)) (. .))",
]


def pairs_of(trees: list[str]) -> list[tuple[str, str]]:
    return [(" ".join(words_of(tree)), " ".join(linearise(tree))) for tree in map(parse, trees)]


def treebank(folder: Path, trees: list[str]) -> EvaluationSet:
    text = set_of(folder / "gold", pairs_of(trees), "test", ("en", "trees"))
    write_lines(text.gold_trees, trees)
    return text


def rebuilt(folder: Path, trees: list[str], outputs: list[str]) -> Parses:
    hypotheses = Hypotheses(folder / "hypotheses")
    hypotheses.folder.mkdir()
    write_lines(hypotheses.folder / "test.trees", outputs)
    return rebuild_parses(new_context(folder / "parses"), hypotheses, treebank(folder, trees))


def test_correct_symbols_give_the_gold_trees_and_full_marks(tmp_path: Path) -> None:
    """Gold trees, linearised and rebuilt with the gold tags, are the gold trees: F1 100, nothing repaired."""
    gold = [placed.tree for placed in read_trees(make_tree_set(tmp_path).gold_trees)]
    parses = rebuilt(tmp_path, [bracketed(tree) for tree in gold], [" ".join(linearise(tree)) for tree in gold])
    assert parses.trees == gold == parses.gold
    assert parses.load().repaired == 0
    scores = score_parses(new_context(tmp_path / "scores"), parses).load()
    assert (scores.total.f1, scores.total.complete_match, scores.total.valid) == (100, 100, 12)


def test_repairs_are_counted_and_errors_cost(tmp_path: Path) -> None:
    parses = rebuilt(tmp_path, GOLD, ["(S (NP XX XX )NP (VP XX (NP XX", "(S (NP XX )NP (VP XX )VP XX )S"])
    record = parses.load()
    assert (record.sentences, record.repaired) == (2, 1)
    assert record.repairs == {"unclosed": 3, "missing word": 2}
    first, second = parses.trees
    assert bracketed(second) == GOLD[1]
    assert words_of(first) == ["The", "man", "hears", "the", "dog", "."]
    assert [node.label for node in preterminals(first)] == ["DT", "NN", "VBZ", "DT", "NN", "."]
    scores = score_parses(new_context(tmp_path / "scores"), parses).load().total
    assert scores.valid == 2
    # Of 4 + 3 gold brackets, S and the first NP of the first tree and all of the second are found.
    assert scores.recall == pytest.approx(100 * 5 / 7)


def test_right_branching_trees(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first word and the final mark are the root's. Each word between them opens a constituent. A warning names a
    test symbol missing from the training trees once."""
    known = {symbol for _, symbols in pairs_of(GOLD) for symbol in symbols.split()} - {")NP"}
    corpus = corpus_of(tmp_path / "train", pairs_of(GOLD), ("en", "trees"), symbols=known)
    parses = right_branching(new_context(tmp_path / "parses"), corpus, treebank(tmp_path, GOLD))
    (warning,) = caplog.messages
    assert warning.endswith("test.trees, line 1: no training tree has the symbol )NP")
    first, second = map(bracketed, parses.trees)
    # VP ends both sentences, NP only one
    assert first == "(S (DT The) (VP (NN man) (VP (VBZ hears) (VP (DT the) (NN dog)))) (. .))"
    assert second == "(S (PRP We) (VBD slept) (. .))"
    scores = score_parses(new_context(tmp_path / "scores"), parses).load().total
    assert (scores.valid, 0 < scores.f1 < 100) == (2, True)
