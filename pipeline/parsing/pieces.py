"""The pieces of a vocabulary that trees are written with."""

from sentencepiece import SentencePieceProcessor

from pipeline.errors import UserError
from pipeline.parsing.constraint import TreeTokens
from pipeline.parsing.symbols import WORD_SYMBOL
from pipeline.text.vocabulary import SPACE_SIGN


def writes_trees(vocabulary: SentencePieceProcessor) -> bool:
    """Tells the vocabulary of a parser, which has a piece for any word of a tree."""
    return bool(vocabulary.piece_to_id(SPACE_SIGN + WORD_SYMBOL) != vocabulary.unk_id())


def tree_tokens(vocabulary: SentencePieceProcessor) -> TreeTokens:
    """Returns the ids of brackets and of XX; a label counts if both its brackets are pieces.

    Raises UserError if there are none: the vocabulary is not that of a parser.
    """
    ids = {vocabulary.id_to_piece(i): i for i in range(len(vocabulary))}
    opening = {piece[2:]: i for piece, i in ids.items() if piece.startswith(f"{SPACE_SIGN}(") and len(piece) > 2}
    closing = {piece[2:]: i for piece, i in ids.items() if piece.startswith(f"{SPACE_SIGN})") and len(piece) > 2}
    labels = sorted(opening.keys() & closing.keys())
    word = ids.get(SPACE_SIGN + WORD_SYMBOL)
    if word is None or not labels:
        raise UserError("the vocabulary has no pieces for brackets and XX, so it is not a parser's; search freely")
    return TreeTokens(len(vocabulary), [opening[label] for label in labels], [closing[label] for label in labels], word)
