"""pipeline.corpora.grammar: sentences that a native speaker would write, in three languages at once."""

import csv
import re
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.corpora.grammar import derive, word_by_word
from pipeline.parsing.trees import bracketed, parse, words_of

SENTENCES = Path(__file__).with_name("sentences.tsv")
TREES = {
    7037: "(S (NP (NP (NNP Julia) (POS 's)) (JJ old) (NN umbrella)) (VP (VBD was) (ADJP (JJ big))) (. .))",
    5146: "(S (NP (DT The) (NNS children)) (VP (VBD saw) (NP (NP (DT a) (NN castle))"
    " (SBAR (WHPP (IN in) (WHNP (WDT which))) (S (NP (PRP I)) (VP (VBD lived)))))) (. .))",
    23617: "(S (NP (PRP$ My) (NN boy)) (VP (VBZ puts) (PRT (RP on)) (NP (DT a) (NN skirt))) (. .))",
}


def test_sentences_are_those_of_a_native_speaker() -> None:
    """A derivation for each phenomenon, by its number in the stream of seed 1."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, dialect="excel-tab"):
            derivation = derive(1, int(row["number"]))
            found = derivation.english, derivation.german, derivation.french
            assert found == (row["english"], row["german"], row["french"]), row["phenomenon"]


def test_trees_are_penn_style() -> None:
    assert {number: derive(1, number).tree for number in TREES} == TREES


@given(st.integers(0, 1000), st.integers(0, 2**64 - 1))
@settings(max_examples=400)
def test_every_derivation_is_well_formed(seed: int, number: int) -> None:
    """Any derivation is deterministic, has a tree over the English tokens, and yields tidy sentences that end once."""
    derivation = derive(seed, number)
    assert derivation == derive(seed, number)
    tree = parse(derivation.tree)
    assert tree.label in ("S", "SQ")
    assert words_of(tree) == derivation.tokens
    assert bracketed(tree) == derivation.tree
    assert re.findall(r"'s(?!\w)|[\w-]+|[.,?]", derivation.english) == derivation.tokens
    ends = {derivation.english: r"\w[.?]", derivation.german: r"\w[.?]", derivation.french: r"\w(\.| \?)"}
    for text, end in ends.items():
        assert re.fullmatch(rf"(?:[\w'-]+,? )*[\w'-]*{end}", text), text
        assert text[0].isupper()
    # French elisions and contractions are always applied.
    apart = r"\b([ljdmtsn]|qu)' |\b(de|à) les? |\b(le|la|de|je|ne|que) [aeiouéèê]"
    assert not re.search(apart, derivation.french.lower().replace("le onze", ""))


def test_english_decides_the_translation() -> None:
    translations_of: dict[str, tuple[str, str]] = {}
    repeated = 0
    for number in range(6000):
        derivation = derive(7, number)
        translations = derivation.german, derivation.french
        repeated += derivation.english in translations_of
        assert translations_of.setdefault(derivation.english, translations) == translations
    assert 0 < repeated < 120


@pytest.mark.parametrize(("language", "attribute"), [("de", "german"), ("fr", "french")])
def test_word_by_word_substitution_is_no_translation(language: str, attribute: str) -> None:
    derivations = [derive(3, number) for number in range(1000)]
    hypotheses = [word_by_word(derivation.english, language) for derivation in derivations]
    references = [getattr(derivation, attribute) for derivation in derivations]
    assert 10 < sacrebleu.corpus_bleu(hypotheses, [references]).score <= 35
    unknown = {word for text in hypotheses for word in re.findall(r"\w+", text.lower())}
    assert not unknown & {"the", "sees", "houses", "with", "when"}
