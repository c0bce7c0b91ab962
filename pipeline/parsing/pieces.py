"""The pieces of a vocabulary that trees are written with."""

from sentencepiece import SentencePieceProcessor

from pipeline.errors import UserError
from pipeline.parsing.constraint import TreeTokens
from pipeline.parsing.symbols import BRACKET, WORD_SYMBOL, tag_of
from pipeline.text.vocabulary import SPACE_SIGN


def writes_trees(vocabulary: SentencePieceProcessor) -> bool:
    """Tells the vocabulary of a parser, which has a piece for any word of a tree."""
    return bool(vocabulary.piece_to_id(SPACE_SIGN + WORD_SYMBOL) != vocabulary.unk_id())


def tree_tokens(vocabulary: SentencePieceProcessor) -> TreeTokens:
    """Returns the ids of brackets, and of XX and tags; a label counts if both its brackets are pieces.

    Raises UserError if there are none: the vocabulary is not that of a parser.
    """
    pieces = {i: vocabulary.id_to_piece(i) for i in range(len(vocabulary))}
    ids = {piece.removeprefix(SPACE_SIGN): i for i, piece in pieces.items() if piece.startswith(SPACE_SIGN)}
    brackets = {symbol: bracket for symbol in ids if (bracket := BRACKET.fullmatch(symbol))}
    opening = {bracket[2]: ids[symbol] for symbol, bracket in brackets.items() if bracket[1] == "("}
    closing = {bracket[2]: ids[symbol] for symbol, bracket in brackets.items() if bracket[1] == ")"}
    labels = sorted(opening.keys() & closing.keys())
    if WORD_SYMBOL not in ids or not labels:
        raise UserError("the vocabulary has no pieces for brackets and XX, so it is not a parser's; search freely")
    words = [i for symbol, i in ids.items() if tag_of(symbol)]
    return TreeTokens(
        len(vocabulary), [opening[label] for label in labels], [closing[label] for label in labels], words
    )
