"""pipeline.parsing.linearisation: exact round trips, and a tree over the input's words from any output."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.parsing.linearisation import Repair, linearise, rebuild, tag_of
from pipeline.parsing.trees import PUNCTUATION_TAGS, Tree, bracketed, parse, preterminals, with_tags_of, words_of
from tests.support.random_trees import LABELS, trees

SENTENCE = "(S (NP (NNP Ms.) (NNP Haag)) (VP (VBZ plays) (NP (NNP Elianti))) (. .))"
OUTPUTS = [*(bracket + label for label in LABELS for bracket in "()"), "XX", "XX", "XX"]


@given(trees())
def test_round_trip_with_tags(tree: Tree) -> None:
    """With tags, a round trip loses only punctuation tags, which follow from the word."""
    symbols = linearise(tree, with_tags=True)
    rebuilt = rebuild(symbols, words_of(tree))
    assert not rebuilt.repairs
    for written, gold in zip(preterminals(rebuilt.tree), preterminals(tree), strict=True):
        assert written == gold or gold.word in PUNCTUATION_TAGS
    assert with_tags_of(rebuilt.tree, tree) == tree
    assert [tag for symbol in symbols if (tag := tag_of(symbol))] == [node.label for node in preterminals(tree)]


def test_the_symbols_of_a_sentence_with_tags() -> None:
    tree = parse(SENTENCE)
    symbols = ["(S", "(NP", "XX/NNP", "XX/NNP", ")NP", "(VP", "XX/VBZ", "(NP", "XX/NNP", ")NP", ")VP", "XX/.", ")S"]
    assert linearise(tree, with_tags=True) == symbols
    assert rebuild(symbols, words_of(tree)) == (tree, Counter())
    fewer = rebuild(["(S", "(NP", "XX/NNP", ")NP", ")S"], ["a", "b"])
    assert bracketed(fewer.tree) == "(S (NP (NNP a)) (XX b))"
    assert fewer.repairs == {Repair.MISSING_WORD: 1}


@pytest.mark.parametrize(
    ("symbols", "words", "tree", "repairs"),
    [
        ("(S XX XX )S", "a b", "(S a b)", {}),
        ("(S xx XX (S) )S", "a", "(S a)", {Repair.UNKNOWN_SYMBOL: 2}),
        (")S (S XX )S )NP", "a", "(S a)", {Repair.STRAY_CLOSING: 2}),
        ("(S (NP XX )VP XX )NP XX )S", "a b c", "(S (NP a b) c)", {Repair.STRAY_CLOSING: 1}),
        ("(S (NP (QP XX )NP XX )S", "a b", "(S (NP (QP a)) b)", {Repair.MISMATCHED_CLOSING: 1}),
        ("(S (NP XX (PP XX", "a b", "(S (NP a (PP b)))", {Repair.UNCLOSED: 3}),
        ("(S (NP (QP )QP )NP", "a", "(TOP a)", {"empty constituent": 3, "unclosed": 1, "missing word": 1}),
        ("(S (NP XX )NP )S", "a b c", "(S (NP a) b c)", {Repair.MISSING_WORD: 2}),
        ("(S XX XX (NP XX )NP )S", "a", "(S a)", {Repair.SURPLUS_WORD: 2, Repair.EMPTY_CONSTITUENT: 1}),
        ("(S XX )S XX (S XX )S", "a b c", "(TOP (S a) b (S c))", {Repair.SEVERAL_ROOTS: 1}),
        ("XX", "a b", "(TOP a b)", {Repair.MISSING_WORD: 1}),
        ("", "a b", "(TOP a b)", {Repair.MISSING_WORD: 2}),
    ],
)
def test_each_repair(symbols: str, words: str, tree: str, repairs: dict[Repair | str, int]) -> None:
    rebuilt = rebuild(symbols.split(), words.split())
    assert bracketed(rebuilt.tree).replace("(XX a)", "a").replace("(XX b)", "b").replace("(XX c)", "c") == tree
    assert rebuilt.repairs == Counter({Repair(kind): number for kind, number in repairs.items()})


def check(symbols: list[str], words: list[str]) -> Counter[Repair]:
    """Symbols yield one deterministic tree over exactly the words, which its own symbols rebuild without repairs."""
    rebuilt = rebuild(symbols, words)
    assert words_of(rebuilt.tree) == words
    assert rebuild(symbols, words) == rebuilt
    if words:
        again = rebuild(linearise(rebuilt.tree), words)
        assert again.tree == rebuilt.tree
        assert not again.repairs
    if linearise(rebuilt.tree) != symbols:
        assert rebuilt.repairs or not words
    return rebuilt.repairs


@given(st.lists(st.one_of(st.sampled_from(OUTPUTS), st.text("()XS \n", max_size=4), st.text(max_size=3)), max_size=12))
def test_any_text_is_an_output(symbols: list[str]) -> None:
    check(symbols, ["a", "b", "."])


def test_a_thousand_open_brackets() -> None:
    """Depth exhausts neither stack nor time: brackets closed or open, empty or not, or closed by an outer bracket."""
    for symbols, kind in (
        (["(NP"] * 10_000, Repair.EMPTY_CONSTITUENT),
        ([*["(NP"] * 10_000, "XX"], Repair.UNCLOSED),
        (["(S", *["(NP"] * 10_000, "XX", ")S"], Repair.MISMATCHED_CLOSING),
        ([*["(NP"] * 10_000, "XX", *[")NP"] * 10_000, *[")VP"] * 10_000], Repair.STRAY_CLOSING),
    ):
        rebuilt = rebuild(symbols, ["a"])
        assert rebuilt.repairs[kind] == (1 if kind is Repair.MISMATCHED_CLOSING else 10_000)
        assert words_of(rebuilt.tree) == ["a"]
        assert bracketed(rebuilt.tree).count("(NP") in (0, 10_000)
