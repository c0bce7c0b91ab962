"""pipeline.parsing.evalb: scores computed by hand, EVALB's treatment of malformed lines, and its parameters."""

import gzip
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.parsing import evalb
from pipeline.parsing.evalb import DELETED, MAX_ERRORS, SAME_LABELS, SHORT_WORDS, BracketingScores, Status, score_trees
from pipeline.parsing.trees import bracketed, cleaned, read_trees

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (DT a) (NN bone))) (. .))"
"""Without the full stop, 5 words and the brackets S 0-5, NP 0-2, VP 2-5, NP 3-5."""


def scored(folder: Path, gold: list[str], test: list[str]) -> BracketingScores:
    for name, lines in (("gold", gold), ("test", test)):
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return score_trees(folder / "gold", folder / "test")


CASES = {
    # The same tree: 4 of 4 brackets, 5 of 5 tags. The length includes the full stop.
    "equal": (GOLD, GOLD, (6, 0, 4, 4, 4, 0, 5, 5)),
    # NP 3-5 is missing, PP 3-4 and NP 4-5 are extra: 3 matched of 4 and of 5. Nothing crosses.
    "split": (
        GOLD,
        "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (PP (DT a)) (NP (NN bone))) (. .))",
        (6, 0, 3, 4, 5, 0, 5, 5),
    ),
    # NP 0-1, VP 1-3 and X 3-5 for NP 0-2, VP 2-5, NP 3-5: only S matches; VP 1-3 crosses NP 0-2 (and VP 2-5: once).
    "cross": (GOLD, "(S (NP (DT the)) (VP (NN dog) (VBZ eats)) (X (DT a) (NN bone)) (. .))", (6, 0, 1, 4, 4, 1, 5, 5)),
    # Traces, brackets of traces only, and functions are ignored: of 8 leaves 6 count as length, and 5 are compared.
    # TOP is ignored, too, but an outer bracket without a label counts: 5 gold brackets.
    "functions and traces": (
        "( (S (NP-SBJ-1 (DT the) (NN dog)) (VP (VBZ eats) (NP=2 (DT a) (NN bone)) (NP (-NONE- *-1)))"
        " (SBAR (-NONE- 0)) (. .)) )",
        f"(TOP {GOLD})",
        (6, 0, 4, 5, 4, 0, 5, 5),
    ),
    # ADVP is PRT as a bracket and as a tag (RB and RP are not): both brackets match, one tag of three.
    "equivalent labels": (
        "(VP (PRT (ADVP up)) (ADVP (RB on)) (VB go))",
        "(VP (ADVP (PRT up)) (PRT (RP on)) (VBP go))",
        (3, 0, 3, 3, 3, 0, 3, 1),
    ),
    # NP over NP: one tree's second NP has no partner in the other. 3 of 4 brackets and 3 of 3.
    "unary chain": ("(S (NP (NP (NN a))) (VP (VB b)))", "(S (NP (NN a)) (VP (VB b)))", (2, 0, 3, 4, 3, 0, 2, 2)),
    # A parenthesis of deleted punctuation has no word and is no bracket: 2 gold brackets, 1 word.
    "emptied bracket": ("(S (NP (NN a)) (PRN (, ,)) (. .))", "(S (NP (NN a)) (, ,) (. .))", (3, 0, 2, 2, 2, 0, 1, 1)),
    # Errors that end the comparison leave only the length.
    "another number of words": (GOLD, GOLD.replace("(DT a) ", ""), (6, 1, 0, 0, 0, 0, 0, 0)),
    "another word": (GOLD, GOLD.replace("bone", "hat"), (6, 1, 0, 0, 0, 0, 0, 0)),
    # A missing bracket is an error, but scores are computed: the root, which never ends, matches nothing.
    "an open bracket": (GOLD, GOLD[:-1], (6, 1, 3, 4, 4, 0, 5, 5)),
    # A line without words to score is skipped, even if the gold tree has none.
    "an empty line": (GOLD, "", (6, 2, 0, 0, 0, 0, 0, 0)),
    "only punctuation": (GOLD, "(S (. .))", (6, 2, 0, 0, 0, 0, 0, 0)),
}
"""Gold line, test line, (length, status, matched, gold and test brackets, crossing, words, correct tags)."""


@pytest.mark.parametrize("name", CASES)
def test_figures_of_a_sentence(name: str, tmp_path: Path) -> None:
    gold, test, expected = CASES[name]
    _, score = scored(tmp_path, [GOLD, gold], [GOLD, test]).sentences
    assert (score.length, int(score.status), *score[3:]) == expected


def test_totals_are_of_valid_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios are of sums. Skipped and wrong sentences are counted but not summed, short ones also in a second total."""
    names = ("equal", "split", "cross", "an empty line", "another word")
    gold, test = zip(*(CASES[name][:2] for name in names), strict=True)
    monkeypatch.setattr(evalb, "SHORT_WORDS", 5)
    scores = scored(tmp_path, list(gold), list(test))
    total = scores.total
    assert (total.sentences, total.errors, total.skipped, total.valid) == (5, 1, 1, 3)
    assert (total.recall, total.precision) == (100 * 8 / 12, 100 * 8 / 13)
    assert total.f1 == pytest.approx(2 * 8 / (12 + 13) * 100)
    assert total.complete_match == total.no_crossing / 2 == pytest.approx(100 / 3)
    assert total.average_crossing == pytest.approx(1 / 3)
    assert (total.two_or_less_crossing, total.tagging_accuracy) == (100, 100)
    assert scores.total_short.sentences == 0
    assert scores.messages == ["5 : Words unmatch (bone|hat)"]
    assert total.rounded()["recall"] == 66.67
    assert scored(tmp_path, ["(S (NN a) (NN b))"], ["(X (NN a) (NN b))"]).total.rounded()["f1"] == 0


def test_too_many_errors_end_the_scoring(tmp_path: Path) -> None:
    """MAX_ERROR + 1 errors are tolerated, as in EVALB. A bracket with two words ends the scoring at once."""
    wrong = GOLD.replace("bone", "hat")
    assert scored(tmp_path, [GOLD] * 12, [GOLD, *[wrong] * 11]).total.errors == 11
    with pytest.raises(UserError, match=r"12 errors, more than MAX_ERROR 10 .* line 12: Words unmatch \(bone\|hat\)"):
        scored(tmp_path, [GOLD] * 12, [wrong] * 12)
    with pytest.raises(UserError, match=r"test, line 2: 'a' is not the only word of a bracket; correct"):
        scored(tmp_path, [GOLD] * 2, [GOLD, "(S (NN a b))"])


RAW = "( (S (NP-SBJ (DT the) (NN dog))\n    (VP (VBZ eats)\n      (NP (DT a) (NN bone)) (NP (-NONE- *)))\n(. .)) )"


@pytest.mark.parametrize(
    ("gold", "test"),
    [
        ([RAW, "", RAW, "( (S (NP (-NONE- *))))"], [GOLD, GOLD]),
        ([GOLD, GOLD], [RAW, RAW]),
        ([RAW, RAW], [RAW, RAW]),
        (["(S", RAW[2:-2], ")"], [f"(S {GOLD})"]),
    ],
)
def test_trees_over_several_lines_are_read_like_a_treebank(gold: list[str], test: list[str], tmp_path: Path) -> None:
    """Without outer bracket, traces, functions and trees of traces only."""
    total = scored(tmp_path, gold, test).total
    assert (total.sentences, total.errors, total.f1) == (len(test), 0, 100)


@pytest.mark.parametrize(
    ("gold", "test", "message"),
    [
        ([], [], r"none of 0 sentences can be scored"),
        ([GOLD], ["(X (NN a))"], r"none of 1 sentences can be scored \(1 with an error, 0 without a word\)"),
        ([GOLD], [""], r"\(0 with an error, 1 without a word\)"),
        ([GOLD, GOLD], [GOLD], r"gold has 2 trees and .*test 1; they must be of the same sentences"),
        ([RAW, RAW], [GOLD], r"gold has 2 trees and .*test 1"),
        ([RAW, "(S\n (NP a b))"], [GOLD] * 2, r"gold, line 6: the word 'b' is not alone in its bracket"),
    ],
)
def test_what_cannot_be_scored_is_an_error(gold: list[str], test: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        scored(tmp_path, gold, test)


def test_packed_files_and_foreign_bytes(tmp_path: Path) -> None:
    """gzip files are read like plain ones, and words that are not UTF-8 are compared byte by byte."""
    line = b"(NP (NN caf\xe9) (NN \xff) (NN \xc2\xa0))\n"
    (tmp_path / "gold").write_bytes(gzip.compress(line * 2))
    (tmp_path / "test").write_bytes(line + line.replace(b"\xe9", b"\xe8"))
    scores = score_trees(tmp_path / "gold", tmp_path / "test")
    assert [score.status for score in scores.sentences] == [Status.VALID, Status.ERROR]
    assert scores.sentences[0].words == 3


def test_the_treebank_against_itself(data: Path, tmp_path: Path) -> None:
    """Every fifth of 3,914 trees scores 100, cleaned against original in TOP: EVALB removes what cleaning removes."""
    gold = [placed.tree for placed in read_trees(data / "treebank" / "wsj_0001-0199.mrg.gz")][::5]
    in_top = ["(TOP " + bracketed(tree).removeprefix("( ") for tree in gold]
    scores = scored(tmp_path, in_top, [bracketed(cleaned(tree) or tree) for tree in gold])
    total = scores.total
    assert (total.sentences, total.valid, total.complete_match) == (783, 783, 100)
    assert (total.recall, total.precision, total.f1, total.tagging_accuracy) == (100, 100, 100, 100)
    assert not scores.messages


def test_the_parameters_are_those_of_collins(data: Path) -> None:
    lines = (data / "evalb" / "COLLINS.prm").read_text().split("\n")
    named = [tuple(line.split()) for line in lines if line.strip() and not line.startswith("#")]
    assert sorted(value for name, value, *_ in named if name == "DELETE_LABEL") == sorted(DELETED)
    assert dict(pair for pair in named if len(pair) == 2 and pair[0] != "DELETE_LABEL") == {
        "DEBUG": "0",
        "MAX_ERROR": str(MAX_ERRORS),
        "CUTOFF_LEN": str(SHORT_WORDS),
        "LABELED": "1",
        "DELETE_LABEL_FOR_LENGTH": "-NONE-",
    }
    assert [set(labels) for name, *labels in named if name == "EQ_LABEL"] == [SAME_LABELS]
