"""Chooses heads and words for the appendix's figures, where the user has not.

    all_heads(attended, Wanted())             # Figure 3: a layer and a word with distant attention
    one_antecedent(attended, Wanted())        # Figure 4: a word and two heads that attend to one earlier word
    two_heads(attended, Wanted())             # Figure 5: the two most different heads of a layer

Shapes: N layers, H heads, L words.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.attention.recording import Kind
from pipeline.attention.translated import Attended, by_word
from pipeline.errors import UserError

LONG_WORDS = 4
"""The least distance of words that Figures 3 and 4 call distant."""
KIND: Kind = "encoder"
"""All figures of the paper's appendix show encoder self-attention."""


class Wanted(NamedTuple):
    """The user's choice; layers and heads count from 1."""

    layer: int | None = None
    heads: tuple[int, ...] = ()
    word: str | None = None
    reason: str = "chosen"
    """Explanation for the caption."""

    def within(self, attended: Attended) -> tuple[int | None, tuple[int, ...], int | None]:
        """Returns layer, heads and the first such word (ignoring case), all from 0.

        Raises UserError if the model lacks the layer or a head, or the sentence the word.
        """
        n_layers, n_heads = attended.weights[KIND].shape[:2]
        if self.layer is not None and not 1 <= self.layer <= n_layers:
            raise UserError(f"--layer {self.layer}: the model has layers 1 to {n_layers}")
        for head in self.heads:
            if not 1 <= head <= n_heads:
                raise UserError(f"--heads {head}: the model has heads 1 to {n_heads}")
        number = None
        if self.word is not None:
            words = [attended.source.word(i) for i in range(len(attended.source.words))]
            number = next((i for i, word in enumerate(words) if word.lower() == self.word.lower()), None)
            if number is None:
                raise UserError(f"--word {self.word}: there is no such word in “{attended.sentence}”")
        return self.layer and self.layer - 1, tuple(head - 1 for head in self.heads), number


class Choice(NamedTuple):
    """The content of a figure."""

    layer: int
    """From 0."""
    heads: tuple[int, ...]
    """From 0."""
    word: int | None
    """Index of the word whose attention is drawn; None for all words."""
    why: str
    """Explanation for the caption."""


def all_heads(attended: Attended, wanted: Wanted) -> Choice:
    """Chooses the layer and word whose heads attend most to words at least LONG_WORDS away."""
    weights_NHLL, is_word_L = _weights(attended), _is_word(attended)
    far_LL = np.abs(_offsets(len(is_word_L))) >= LONG_WORDS
    share_NL = (weights_NHLL * (far_LL & is_word_L)).sum(-1).mean(1) * is_word_L
    wanted_layer, heads, wanted_word = wanted.within(attended)
    layer, word = _best(share_NL, wanted_layer, wanted_word)
    heads = heads or tuple(range(weights_NHLL.shape[1]))
    share, why = share_NL[layer, word], "the most of any word and layer"
    why = wanted.reason if wanted.layer or wanted.word else why
    return Choice(layer, heads, word, f"{share:.0%} of its attention is on words at least {LONG_WORDS} away: {why}")


def one_antecedent(attended: Attended, wanted: Wanted) -> Choice:
    """Chooses a word and two heads of a layer with the most attention on one word at least LONG_WORDS before it."""
    weights_NHLL, is_word_L = _weights(attended), _is_word(attended)
    earlier_LL = _offsets(len(is_word_L)) <= -LONG_WORDS
    peak_NHL = (weights_NHLL * (earlier_LL & is_word_L)).max(-1) * is_word_L
    two_NHL = np.sort(peak_NHL, axis=1)[:, -2:]
    wanted_layer, heads, wanted_word = wanted.within(attended)
    layer, word = _best(two_NHL.sum(1), wanted_layer, wanted_word)
    order = np.argsort(-peak_NHL[layer, :, word], kind="stable")
    heads = (heads or tuple(order.tolist()))[:2]
    target = int((weights_NHLL[layer, heads[0], word] * (earlier_LL[word] & is_word_L)).argmax())
    peak = peak_NHL[layer, heads[0], word]
    antecedent = attended.source.word(target)
    most = f"the most on any single word at least {LONG_WORDS} before"
    why = wanted.reason if any((wanted.layer, wanted.heads, wanted.word)) else most
    if not (earlier_LL[word] & is_word_L).any():
        none = f"no word stands {LONG_WORDS} or more before “{attended.source.word(word)}”"
        return Choice(layer, heads, word, none if why == most else f"{none}: {why}")
    return Choice(layer, heads, word, f"head {heads[0] + 1} puts {peak:.0%} on “{antecedent}”: {why}")


def two_heads(attended: Attended, wanted: Wanted) -> Choice:
    """Chooses the two heads of a layer whose attention differs most, averaged over words."""
    weights_NHLL = _weights(attended)
    best: tuple[float, int, tuple[int, ...]] = (-1.0, 0, (0,))
    wanted_layer, asked, _ = wanted.within(attended)
    for layer in range(len(weights_NHLL)) if wanted_layer is None else [wanted_layer]:
        heads = asked[:2] or range(weights_NHLL.shape[1])
        for pair in combinations(heads, 2) if len(heads) > 1 else [tuple(heads)]:
            difference_LL = weights_NHLL[layer, pair[0]] - weights_NHLL[layer, pair[-1]]
            best = max(best, (float(np.abs(difference_LL).sum(-1).mean() / 2), layer, tuple(pair)))
    distance, layer, heads = best
    why = "chosen" if asked else "the two heads of a layer that differ most"
    return Choice(layer, heads, None, f"{distance:.0%} of their attention is on different words: {why}")


def _weights(attended: Attended) -> NDArray[np.float32]:
    return by_word(attended.weights[KIND], *attended.sides(KIND))


def _offsets(n: int) -> NDArray[np.int64]:
    places = np.arange(n)
    offsets: NDArray[np.int64] = places[None, :] - places[:, None]
    return offsets


def _is_word(attended: Attended) -> NDArray[np.bool_]:
    """True for words, False for punctuation and ⟨end⟩."""
    side = attended.source
    real = [any(sign.isalnum() for sign in side.word(number)) for number in range(len(side.words))]
    separators = [begin in side.separators for begin, _ in side.words]
    return np.array(real) & ~np.array(separators)


def _best(score_NL: NDArray[np.float32], layer: int | None, word: int | None) -> tuple[int, int]:
    """Returns the layer and word with the best score, within the user's choice."""
    open_NL = np.full(score_NL.shape, -1.0)
    chosen = tuple(slice(None) if at is None else slice(at, at + 1) for at in (layer, word))
    open_NL[chosen] = score_NL[chosen]
    best = np.unravel_index(int(open_NL.argmax()), open_NL.shape)
    return int(best[0]), int(best[1])
