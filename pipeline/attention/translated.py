"""Translates a sentence and records the attention weights of encoding it and decoding its translation (§6.1).

    attended = AttentionTranslator(folder, DecodingSettings(dtype="float32")).attend("The dog sleeps.")
    attended.translation, attended.weights["cross"][layer, head, written, source]

Shapes: H heads, L query length, M key length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from model.batch import Rows
from model.config import BEGIN_ID, END_ID, UNKNOWN_ID
from model.transformer import Transformer
from pipeline.attention.recording import KINDS, Kind, recording
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.text.encoding import decode_ids
from pipeline.text.normalisation import normalised
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import SPACE_SIGN

LONGEST_DRAWN = 256
"""Maximum source length, END_ID included: every head has a weight for each pair of tokens."""
BEGIN, END = "⟨begin⟩", "⟨end⟩"
"""How BEGIN_ID and END_ID are displayed."""


class Pieces(NamedTuple):
    """One side of an attention: its tokens and words."""

    texts: tuple[str, ...]
    """The pieces, without the space sign."""
    words: tuple[tuple[int, int], ...]
    """First piece and end (exclusive) of words, punctuation marks, ⟨begin⟩ and ⟨end⟩."""
    separators: tuple[int, ...]
    """The pieces ⟨begin⟩ and ⟨end⟩."""

    def word(self, number: int) -> str:
        """Returns the text of a word."""
        return "".join(self.texts[slice(*self.words[number])])


@dataclass(frozen=True)
class Attended:
    """A sentence, its translation, and the attention weights."""

    sentence: str
    translation: str
    score: float
    """Log-probability divided by the length penalty (`model.search`)."""
    source: Pieces
    read: Pieces
    """The decoder's input: ⟨begin⟩ and the output."""
    written: Pieces
    """The decoder's output and ⟨end⟩."""
    weights: Mapping[Kind, NDArray[np.float32]]
    """(layers, H, L, M) by kind."""

    def sides(self, kind: Kind) -> tuple[Pieces, Pieces]:
        """Returns the attending and the attended pieces."""
        queries = self.source if kind == "encoder" else self.written
        return queries, self.read if kind == "decoder" else self.source


class AttentionTranslator(Translator):
    """A translator that also returns attention weights."""

    def _load(self, folder: Path) -> None:
        """Raises UserError if the model has no heads."""
        super()._load(folder)
        if not isinstance(model := self._decoder.model, Transformer):
            has = f"a {model.config.architecture} model has no attention heads"
            raise UserError(f"{folder}: {has}; choose a Transformer")
        self._model = model

    def attend(self, sentence: str) -> Attended:
        """Translates a sentence. Raises UserError if it is blank, or too long for drawing or learned positions."""
        sentence = " ".join(filter(None, normalised(sentence).split(" ")))
        if not sentence:
            raise UserError("the sentence is empty; write one")
        (source,) = encode_lines(self._vocabulary, [sentence])
        longest = min(LONGEST_DRAWN, self._max_positions)
        if len(source) > longest:
            raise UserError(
                f"the sentence has {len(source)} tokens, more than the {longest} that can be drawn; write a shorter one"
            )
        best = self.search([source])[0][0]
        # Not recorded during search: the cached decoder computes the same weights.
        sides = (source, [BEGIN_ID, *best.tokens])
        rows = (Rows.padded(torch.tensor([ids], device=self.device), self.dtype) for ids in sides)
        with torch.inference_mode(), recording(self._model) as recorded:
            self._model(*rows)
        return Attended(
            sentence,
            decode_ids(self._vocabulary, [best.tokens])[0],
            best.score,
            pieces(self._vocabulary, source, sentence),
            pieces(self._vocabulary, [BEGIN_ID, *best.tokens]),
            pieces(self._vocabulary, [*best.tokens, END_ID]),
            {kind: torch.cat(getattr(recorded, kind)).float().cpu().numpy() for kind in KINDS},
        )


def pieces(vocabulary: SentencePieceProcessor, ids: Sequence[int], sentence: str = "") -> Pieces:
    """Splits token ids into displayed words: a word begins at a space, and at and after punctuation.

    Signs that the vocabulary lacks are shown as in `sentence`, if given.
    """
    surfaces = [piece.surface for piece in vocabulary.encode(sentence, return_type="proto").pieces] if sentence else []
    texts: list[str] = []
    begins: list[int] = []
    separators: list[int] = []
    for number, token in enumerate(ids):
        piece = vocabulary.id_to_piece(token)
        text = piece.removeprefix(SPACE_SIGN)
        if token == UNKNOWN_ID and surfaces:
            text = surfaces[number].strip()
        if token in (BEGIN_ID, END_ID):
            text = BEGIN if token == BEGIN_ID else END
            separators.append(number)
        alone = token in (BEGIN_ID, END_ID) or _is_punctuation(text)
        after_alone = number > 0 and (number - 1 in separators or _is_punctuation(texts[-1]))
        if number == 0 or piece.startswith(SPACE_SIGN) or alone or after_alone:
            begins.append(number)
        texts.append(text)
    return Pieces(tuple(texts), tuple(pairwise([*begins, len(ids)])), tuple(separators))


def _is_punctuation(text: str) -> bool:
    """Whether a piece is separate punctuation: no letter, digit, apostrophe or hyphen."""
    return bool(text) and not any(sign.isalnum() or sign in "'’-" for sign in text)


def by_word(weights_LM: NDArray[np.float32], queries: Pieces, keys: Pieces) -> NDArray[np.float32]:
    """Sums weights over a word's keys and averages them over its queries: (..., words, words). Rows still sum to 1."""
    summed = np.add.reduceat(weights_LM, [begin for begin, _ in keys.words], axis=-1)
    starts, sizes = zip(*((begin, end - begin) for begin, end in queries.words), strict=True)
    return (np.add.reduceat(summed, starts, axis=-2) / np.array(sizes)[:, None]).astype(np.float32)
