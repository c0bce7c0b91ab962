"""Constrains a search to well-formed trees with as many words as the sentence (§6.3).

    beam_search(model, source_BS, constraint=WellFormed(tree_tokens(vocabulary), n_words=[7, 5]))

Trees are written like Vinyals et al.'s (2015, "Grammar as a Foreign Language"): `(S (NP XX XX )NP (VP XX )VP )S`. There
is one root, above all words; a closing bracket has the label of the innermost open one, with a word in between. A
bracket is opened only if the tree can still be completed within the maximum length, so every search ends with a tree.

Shapes: B sentences, W hypotheses of each, V vocabulary, L labels, T word symbols, D capacity of open brackets plus one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from model.config import END_ID
from pipeline.errors import UserError
from pipeline.parsing.linearisation import BRACKET, WORD_SYMBOL, tag_of
from pipeline.text.vocabulary import SPACE_SIGN

MAX_OPEN = 100
"""Maximum number of open brackets; the 3,914 trees of NLTK's Penn Treebank sample need at most 28."""
MAX_OPENED_IN_A_ROW = 10
"""Maximum number of brackets opened without a word in between; that sample's trees need at most 6."""
OTHER, OPENING, CLOSING, WORD = range(4)
"""Token kinds."""


@dataclass(frozen=True)
class TreeTokens:
    """The token ids of tree symbols."""

    vocabulary_size: int
    opening: Sequence[int]
    """One per label."""
    closing: Sequence[int]
    """One per label, in the same order."""
    words: Sequence[int]
    """XX, which stands for any word, or one per tag."""


def tree_tokens(vocabulary: SentencePieceProcessor) -> TreeTokens:
    """Returns the ids of brackets, XX and tags; a label needs both its brackets as pieces.

    Raises UserError if there are none, since the vocabulary is not a parser's.
    """
    pieces = {i: vocabulary.id_to_piece(i) for i in range(len(vocabulary))}
    ids = {piece.removeprefix(SPACE_SIGN): i for i, piece in pieces.items() if piece.startswith(SPACE_SIGN)}
    brackets = {symbol: bracket for symbol in ids if (bracket := BRACKET.fullmatch(symbol))}
    opening = {bracket[2]: ids[symbol] for symbol, bracket in brackets.items() if bracket[1] == "("}
    closing = {bracket[2]: ids[symbol] for symbol, bracket in brackets.items() if bracket[1] == ")"}
    labels = sorted(opening.keys() & closing.keys())
    if WORD_SYMBOL not in ids or not labels:
        raise UserError("the vocabulary has no pieces for brackets and XX, so it is not a parser's; unset well_formed")
    words = [i for symbol, i in ids.items() if tag_of(symbol)]
    return TreeTokens(len(vocabulary), [opening[each] for each in labels], [closing[each] for each in labels], words)


@dataclass(frozen=True)
class WellFormed:
    """Constrains a batch's outputs to trees of `n_words` words each (`model.search.Constraint`)."""

    tokens: TreeTokens
    n_words: Sequence[int]
    max_open: int = MAX_OPEN
    max_opened_in_a_row: int = MAX_OPENED_IN_A_ROW

    def start(self, limit_B: Tensor) -> "OpenTrees":
        """Returns the state of a batch of empty trees.

        Raises ValueError if the numbers of word counts and sentences differ, or a sentence has no word or too many for
        its maximum length (END_ID and the root's two brackets take three tokens).
        """
        limits = limit_B.tolist()
        if len(self.n_words) != len(limits):
            raise ValueError(f"n_words has {len(self.n_words)} numbers, but there are {len(limits)} sentences")
        for i, (n, limit) in enumerate(zip(self.n_words, limits, strict=True)):
            if not 1 <= n <= limit - 3:
                raise ValueError(f"sentence {i} has {n} words, but its tree at most {limit} tokens")
        return OpenTrees(self, torch.tensor(self.n_words, device=limit_B.device)[:, None], limit_B.clone())


@dataclass
class OpenTrees:
    """The partial trees of the open hypotheses."""

    rules: WellFormed
    words_left_BW: Tensor
    tokens_left_B: Tensor
    """Remaining tokens of an output, END_ID included."""
    n_open_BW: Tensor = field(init=False)
    """Number of open brackets."""
    labels_BWD: Tensor = field(init=False)
    """Labels of the open brackets, outermost first; later entries are undefined."""
    has_word_BW: Tensor = field(init=False)
    """Whether the innermost open bracket contains a word."""
    opened_in_a_row_BW: Tensor = field(init=False)
    """Brackets opened since the last word or closing bracket."""

    def __post_init__(self) -> None:
        tokens, device = self.rules.tokens, self.words_left_BW.device
        self.n_open_BW = torch.zeros_like(self.words_left_BW)
        self.opened_in_a_row_BW = torch.zeros_like(self.words_left_BW)
        self.has_word_BW = torch.zeros_like(self.words_left_BW, dtype=torch.bool)
        self.labels_BWD = self.words_left_BW.new_zeros(*self.words_left_BW.shape, self.rules.max_open + 1)
        self._opening_L = torch.tensor(tokens.opening, device=device)
        self._closing_L = torch.tensor(tokens.closing, device=device)
        self._kind_V = torch.full((tokens.vocabulary_size,), OTHER, device=device)
        self._kind_V[self._opening_L], self._kind_V[self._closing_L] = OPENING, CLOSING
        self._words_T = torch.tensor(tokens.words, device=device)
        self._kind_V[self._words_T] = WORD
        self._label_V = torch.zeros_like(self._kind_V)
        self._label_V[self._opening_L] = torch.arange(len(tokens.opening), device=device)

    def allowed(self) -> Tensor:
        """Returns a mask of allowed next tokens: (B, W, V)."""
        rules, words_left = self.rules, self.words_left_BW > 0
        inside = self.n_open_BW > 0
        # One more opening bracket leaves at least the other words, all closing brackets and END_ID to be written.
        completable = self.words_left_BW + self.n_open_BW + 3 <= self.tokens_left_B[:, None]
        opens = words_left & completable & (self.n_open_BW < rules.max_open)
        opens &= self.opened_in_a_row_BW < rules.max_opened_in_a_row
        closes = self.has_word_BW & ((self.n_open_BW > 1) | ~words_left) & inside
        allowed_BWV = opens.new_zeros(*opens.shape, rules.tokens.vocabulary_size)
        allowed_BWV[..., self._opening_L] = opens[..., None]
        allowed_BWV[..., self._words_T] = (words_left & inside)[..., None]
        allowed_BWV[..., END_ID] = ~words_left & ~inside
        innermost_BW1 = self.labels_BWD.gather(2, (self.n_open_BW - 1).clamp(min=0)[..., None])
        return allowed_BWV.scatter_(2, self._closing_L[innermost_BW1], closes[..., None])

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        """Replaces the hypotheses with continuations of `parents_BW` by `tokens_BW`."""
        kind_BW = self._kind_V[tokens_BW]
        opened, closed, is_word = (kind_BW == kind for kind in (OPENING, CLOSING, WORD))
        n_open_BW = self.n_open_BW.gather(1, parents_BW)
        places_BWD = parents_BW[..., None].expand(-1, -1, self.labels_BWD.shape[2])
        # Written even if no bracket is opened: then the label is ignored.
        labels_BWD = self.labels_BWD.gather(1, places_BWD)
        self.labels_BWD = labels_BWD.scatter_(2, n_open_BW[..., None], self._label_V[tokens_BW][..., None])
        self.n_open_BW = n_open_BW + opened.long() - closed.long()
        self.words_left_BW = self.words_left_BW.gather(1, parents_BW) - is_word.long()
        self.has_word_BW = ~opened & (self.has_word_BW.gather(1, parents_BW) | closed | is_word)
        self.opened_in_a_row_BW = (self.opened_in_a_row_BW.gather(1, parents_BW) + 1) * opened
        self.tokens_left_B = self.tokens_left_B - 1

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences`."""
        self.words_left_BW, self.n_open_BW = self.words_left_BW[sentences], self.n_open_BW[sentences]
        self.has_word_BW, self.labels_BWD = self.has_word_BW[sentences], self.labels_BWD[sentences]
        self.opened_in_a_row_BW = self.opened_in_a_row_BW[sentences]
        self.tokens_left_B = self.tokens_left_B[sentences]
