"""By default, the figures' heads and words follow from the weights. The user's choice takes precedence."""

import numpy as np
import pytest

from pipeline.attention.choice import LONG_WORDS, Wanted, all_heads, one_antecedent, two_heads
from pipeline.attention.recording import KINDS
from pipeline.attention.translated import Attended, Pieces
from pipeline.errors import UserError

WORDS = ("The", "Law", "is", "good", ",", "and", "its", "aim", "too", "⟨end⟩")
SIDE = Pieces(WORDS, tuple((i, i + 1) for i in range(len(WORDS))), (9,))


@pytest.fixture
def attended() -> Attended:
    """Two layers of three heads that attend to themselves, except as set here."""
    weights = np.tile(np.eye(10, dtype=np.float32), (2, 3, 1, 1))

    def look(layer: int, head: int, word: int, at: int, weight: float) -> None:
        weights[layer, head, word] *= 1 - weight
        weights[layer, head, word, at] += weight

    look(0, 2, 6, 1, 0.9)  # its -> Law
    look(0, 0, 6, 2, 0.5)
    look(1, 0, 7, 1, 0.95)  # a rival with one strong head, then one with three weak heads
    for head in range(3):
        look(1, head, 8, 1, 0.47)
    look(1, 1, 5, 9, 1.0)  # ⟨end⟩ is ignored
    look(0, 1, 8, 4, 1.0)  # and so is a comma
    for head in range(3):
        look(1, head, 0, 8, 0.6)  # far, but ahead
    weights[0, 1, :4] = np.roll(np.eye(10, dtype=np.float32), 1, axis=1)[:4]
    return Attended("The Law is good, and its aim too", "", 0.0, SIDE, SIDE, SIDE, dict.fromkeys(KINDS, weights))


def test_defaults(attended: Attended) -> None:
    """The word that looks far with all heads, the word and heads with one antecedent, and the most different heads."""
    three = all_heads(attended, Wanted())
    assert (three.layer, three.heads, three.word) == (1, (0, 1, 2), 0)
    assert three.why.startswith("60%")
    four = one_antecedent(attended, Wanted())
    assert (four.layer, four.heads, four.word) == (0, (2, 0), 6)
    assert "head 3 puts 90% on “Law”" in four.why
    five = two_heads(attended, Wanted())
    assert (five.layer, five.heads, five.word) == (0, (1, 2), None)


def test_far_begins_where_the_relations_are_distant(attended: Attended) -> None:
    """Attention on nearer words is not drawn, however large."""
    weights = attended.weights["encoder"]
    weights[:] = np.eye(10)
    weights[1, :, 7, 7], weights[1, :, 7, 7 - LONG_WORDS] = 0.7, 0.3
    weights[0, :, 8, 8], weights[0, :, 8, 8 - (LONG_WORDS - 1)] = 0.1, 0.9
    three, four = all_heads(attended, Wanted()), one_antecedent(attended, Wanted())
    assert (three.layer, three.word) == (four.layer, four.word) == (1, 7)
    assert three.why.startswith("30%")
    assert "puts 30% on “good”" in four.why


def test_the_user_s_choice_comes_first(attended: Attended) -> None:
    four = one_antecedent(attended, Wanted(layer=2))
    assert (four.layer, four.heads[0], four.word) == (1, 0, 7)
    four = one_antecedent(attended, Wanted(word="ITS", heads=(3, 2)))
    assert (four.heads, four.word) == ((2, 1), 6)
    assert four.why.endswith("chosen")
    assert one_antecedent(attended, Wanted(word="law")).why == "no word stands 4 or more before “Law”: chosen"
    three = all_heads(attended, Wanted(layer=1, word="its", heads=(1,)))
    assert (three.layer, three.heads, three.word) == (0, (0,), 6)
    for wanted in (Wanted(layer=1), Wanted(heads=(1,)), Wanted(word="its")):
        assert one_antecedent(attended, wanted).why.endswith(": chosen")
        assert all_heads(attended, wanted).why.endswith(": chosen") == (not wanted.heads)
    assert two_heads(attended, Wanted(layer=2, heads=(1, 3, 2))).heads == (0, 2)
    assert two_heads(attended, Wanted(layer=2, heads=(2,)))[:2] == (1, (1,))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(layer=3), "--layer 3: the model has layers 1 to 2"),
        (Wanted(heads=(1, 4)), "--heads 4: the model has heads 1 to 3"),
        (Wanted(word="lamp"), "--word lamp: there is no such word in “The Law is good"),
    ],
)
def test_what_does_not_exist_is_refused(attended: Attended, wanted: Wanted, message: str) -> None:
    with pytest.raises(UserError, match=message):
        wanted.within(attended)
