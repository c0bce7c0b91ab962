"""pipeline.parsing.evalb: figures worked out by hand, EVALB's treatment of malformed lines, and its parameters."""

import gzip
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.parsing.evalb import BracketingScores, EvalbParameters, Status, read_parameters, score_trees
from pipeline.parsing.trees import bracketed, cleaned, read_trees

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (DT a) (NN bone))) (. .))"
"""Without the full stop 5 words; brackets S 0-5, NP 0-2, VP 2-5, NP 3-5."""
COLLINS = EvalbParameters()


def scored(folder: Path, gold: list[str], test: list[str], parameters: EvalbParameters = COLLINS) -> BracketingScores:
    """The scores of some lines."""
    for name, lines in (("gold", gold), ("test", test)):
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return score_trees(folder / "gold", folder / "test", parameters)


CASES = {
    # The same tree: 4 of 4 brackets, 5 of 5 tags; the length counts the full stop.
    "equal": (GOLD, GOLD, COLLINS, (6, 0, 4, 4, 4, 0, 5, 5)),
    # NP 3-5 is missing, PP 3-4 and NP 4-5 are too many: 3 matched of 4 and of 5; nothing crosses.
    "split": (
        GOLD,
        "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (PP (DT a)) (NP (NN bone))) (. .))",
        COLLINS,
        (6, 0, 3, 4, 5, 0, 5, 5),
    ),
    # NP 0-1, VP 1-3 and X 3-5 for NP 0-2, VP 2-5, NP 3-5: only S matches; VP 1-3 crosses NP 0-2 (and VP 2-5: once).
    "crossing": (
        GOLD,
        "(S (NP (DT the)) (VP (NN dog) (VBZ eats)) (X (DT a) (NN bone)) (. .))",
        COLLINS,
        (6, 0, 1, 4, 4, 1, 5, 5),
    ),
    # Unlabelled, X 3-5 matches NP 3-5 too.
    "unlabelled": (
        GOLD,
        "(S (NP (DT the)) (VP (NN dog) (VBZ eats)) (X (DT a) (NN bone)) (. .))",
        EvalbParameters(labeled=False),
        (6, 0, 2, 4, 4, 1, 5, 5),
    ),
    # Traces, what holds nothing else, and functions do not count: of 8 leaves 6 have a length, and 5 are compared.
    # TOP does not count either, but an outer bracket without a label does: 5 gold brackets.
    "functions and traces": (
        "( (S (NP-SBJ-1 (DT the) (NN dog)) (VP (VBZ eats) (NP=2 (DT a) (NN bone)) (NP (-NONE- *-1)))"
        " (SBAR (-NONE- 0)) (. .)) )",
        f"(TOP {GOLD})",
        COLLINS,
        (6, 0, 4, 5, 4, 0, 5, 5),
    ),
    # ADVP is PRT as a bracket and as a tag (RB and RP are not): both brackets match, one tag of three.
    "equivalent labels": (
        "(VP (PRT (ADVP up)) (ADVP (RB on)) (VB go))",
        "(VP (ADVP (PRT up)) (PRT (RP on)) (VBP go))",
        COLLINS,
        (3, 0, 3, 3, 3, 0, 3, 1),
    ),
    # NP over NP: the second of one tree has no partner in the other; 3 of 4 brackets and 3 of 3.
    "unary chain": (
        "(S (NP (NP (NN a))) (VP (VB b)))",
        "(S (NP (NN a)) (VP (VB b)))",
        COLLINS,
        (2, 0, 3, 4, 3, 0, 2, 2),
    ),
    # A parenthesis of deleted punctuation holds no word; with nothing deleted it is a bracket, and words are 3.
    "empty once punctuation is gone": (
        "(S (NP (NN a)) (PRN (, ,)) (. .))",
        "(S (NP (NN a)) (, ,) (. .))",
        COLLINS,
        (3, 0, 2, 2, 2, 0, 1, 1),
    ),
    # A word that counts as another, either way round.
    "equivalent words": (
        "(NP (DT a) (NN b))",
        "(NP (DT the) (NN b))",
        EvalbParameters(eq_word=(("the", "a"),)),
        (2, 0, 1, 1, 1, 0, 2, 2),
    ),
    # The gold tree's '' is deleted, the test tree's POS is not: put back, it is in S 0-3 and NP 0-2 of both.
    "a quote that is a possessive": (
        "(S (NP (NNS dogs) ('' ')) (VP (VBP eat)))",
        "(S (NP (NNS dogs) (POS ')) (VP (VBP eat)))",
        EvalbParameters(quote_label=("''", "POS")),
        (3, 0, 3, 3, 3, 0, 3, 2),
    ),
    # Errors that end the comparison leave only the length.
    "another number of words": (GOLD, GOLD.replace("(DT a) ", ""), COLLINS, (6, 1, 0, 0, 0, 0, 0, 0)),
    "another word": (GOLD, GOLD.replace("bone", "hat"), COLLINS, (6, 1, 0, 0, 0, 0, 0, 0)),
    # A bracket too few is an error, but the figures are computed: the root, which never ends, matches nothing.
    "an open bracket": (GOLD, GOLD[:-1], COLLINS, (6, 1, 3, 4, 4, 0, 5, 5)),
    # No word to be scored: skipped, even where the gold tree has none either.
    "an empty line": (GOLD, "", COLLINS, (6, 2, 0, 0, 0, 0, 0, 0)),
    "only punctuation": (GOLD, "(S (. .))", COLLINS, (6, 2, 0, 0, 0, 0, 0, 0)),
}
"""Gold line, test line, parameters; length, status, matched, gold and test brackets, crossing, words, correct tags."""


@pytest.mark.parametrize("name", CASES)
def test_figures_of_a_sentence(name: str, tmp_path: Path) -> None:
    """Each figure of the sentence line, as worked out above."""
    gold, test, parameters, expected = CASES[name]
    (score,) = scored(tmp_path, [gold], [test], parameters).sentences
    assert (score.length, int(score.status), *score[3:]) == expected


def test_totals_are_of_valid_sentences(tmp_path: Path) -> None:
    """Sums before ratios; a skipped sentence and one with an error are counted, not summed; short ones twice."""
    gold, test = zip(
        *(CASES[name][:2] for name in ("equal", "split", "crossing", "an empty line", "another word")), strict=True
    )
    scores = scored(tmp_path, list(gold), list(test), EvalbParameters(cutoff_len=5))
    total = scores.total
    assert (total.sentences, total.errors, total.skipped, total.valid) == (5, 1, 1, 3)
    assert (total.recall, total.precision) == (100 * 8 / 12, 100 * 8 / 13)
    assert total.f1 == pytest.approx(2 * 8 / (12 + 13) * 100)
    assert total.complete_match == total.no_crossing / 2 == pytest.approx(100 / 3)
    assert total.average_crossing == pytest.approx(1 / 3)
    assert (total.two_or_less_crossing, total.tagging_accuracy) == (100, 100)
    assert scores.total_short.sentences == 0
    assert scores.messages == ["5 : Words unmatch (bone|hat)"]


def test_the_printed_figures(tmp_path: Path) -> None:
    """Columns, digits and titles are EVALB's."""
    gold, test = ([CASES[name][side] for name in ("split", "an empty line")] for side in (0, 1))
    scores = scored(tmp_path, gold, test)
    assert [str(sentence) for sentence in scores.sentences] == [
        "   1    6    0   75.00  60.00     3      4    5      0      5     5   100.00",
        "   2    6    2    0.00   0.00     0      0    0      0      0     0     0.00",
    ]
    lines = list(scores.summary())
    assert lines[:10] == [
        "=== Summary ===",
        "",
        "-- All --",
        "Number of sentence        =      2",
        "Number of Error sentence  =      0",
        "Number of Skip  sentence  =      1",
        "Number of Valid sentence  =      1",
        "Bracketing Recall         =  75.00",
        "Bracketing Precision      =  60.00",
        "Bracketing FMeasure       =  66.67",
    ]
    assert lines[15:17] == ["", "-- len<=40 --"]
    assert lines[17:] == lines[3:15]
    assert list(scores.total.rounded().values())[:7] == [2, 0, 1, 1, 75, 60, 66.67]
    assert scored(tmp_path, [GOLD], ["(X (NN a))"]).total.rounded()["f1"] is None


def test_too_many_errors_end_the_scoring(tmp_path: Path) -> None:
    """MAX_ERROR and one more are tolerated, as EVALB counts; a word beside another ends it at once."""
    wrong = GOLD.replace("bone", "hat")
    assert scored(tmp_path, [GOLD] * 11, [wrong] * 11).total.errors == 11
    with pytest.raises(
        UserError, match=r"12 errors, more than MAX_ERROR 10 .* in line 12: Words unmatch \(bone\|hat\)"
    ):
        scored(tmp_path, [GOLD] * 12, [wrong] * 12)
    with pytest.raises(UserError, match=r"test, line 2: 'a' is not the only word of a bracket; correct"):
        scored(tmp_path, [GOLD] * 2, [GOLD, "(S (NN a b))"])


def test_packed_files_and_foreign_bytes(tmp_path: Path) -> None:
    """gzip files are read as plain ones, and words of bytes that are not UTF-8 are compared byte by byte."""
    line = b"(NP (NN caf\xe9) (NN \xff) (NN \xc2\xa0))\n"
    (tmp_path / "gold").write_bytes(gzip.compress(line * 2))
    (tmp_path / "test").write_bytes(line + line.replace(b"\xe9", b"\xe8"))
    scores = score_trees(tmp_path / "gold", tmp_path / "test")
    assert [score.status for score in scores.sentences] == [Status.VALID, Status.ERROR]
    assert scores.sentences[0].words == 3


def test_the_treebank_against_itself(data: Path, tmp_path: Path) -> None:
    """Every fifth of 3 914 trees scores 100, cleaned against as it is in TOP: EVALB removes what cleaning removes."""
    gold = [placed.tree for placed in read_trees(data / "treebank" / "wsj_0001-0199.mrg.gz")][::5]
    in_top = ["(TOP " + bracketed(tree).removeprefix("( ") for tree in gold]
    scores = scored(tmp_path, in_top, [bracketed(cleaned(tree) or tree) for tree in gold])
    total = scores.total
    assert (total.sentences, total.valid, total.complete_match) == (783, 783, 100)
    assert (total.recall, total.precision, total.f1, total.tagging_accuracy) == (100, 100, 100, 100)
    assert not scores.messages


def test_the_default_is_collins(data: Path) -> None:
    """The values that are built in are those of the file."""
    assert read_parameters(data / "evalb" / "COLLINS.prm") == COLLINS


def test_every_parameter_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever white space separates; what is not named has EVALB's value, by which nothing is deleted."""
    (tmp_path / "all.prm").write_text(
        "# DELETE_LABEL no\nDEBUG 0\nMAX_ERROR 5 or so\nCUTOFF_LEN\t70\nLABELED 0   \nDELETE_LABEL TOP \r\n"
        "DELETE_LABEL   ,\nDELETE_LABEL_FOR_LENGTH -NONE-\nQUOTE_LABEL POS\nEQ_LABEL ADVP  PRT\nEQ_WORD a\tthe\nx\n"
    )
    assert read_parameters(tmp_path / "all.prm") == EvalbParameters(
        max_error=5,
        cutoff_len=70,
        labeled=False,
        delete_label=("TOP", ","),
        delete_label_for_length=("-NONE-",),
        quote_label=("POS",),
        eq_label=(("ADVP", "PRT"),),
        eq_word=(("a", "the"),),
    )
    assert caplog.messages == [f"{tmp_path / 'all.prm'}, line 12: EVALB has no parameter 'x'; ignored"]
    (tmp_path / "none.prm").write_text("")
    assert read_parameters(tmp_path / "none.prm") == EvalbParameters(
        delete_label=(), delete_label_for_length=(), eq_label=()
    )
