"""Finds encoder heads that connect related words: pronoun and antecedent, verb and distant object (appendix).

    measure(Context(folder), checkpoint, embedded_settings, RelationSettings()).load().relations

The paper shows such heads for one sentence. Here, sentences are held-out ones of the embedded corpus, whose grammar
knows the related words (`pipeline.corpora.grammar.references`). A case is a hit if a head attends most to the related
word. Baselines are chance, 1 / (number of words), and the best fixed offset ("three words to the left"). Head and
offset are chosen on every other case and evaluated on the rest.

Shapes: X heads, layer by layer; L pieces, W words, M attended words; C cases.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from sentencepiece import SentencePieceProcessor

from model.batch import Rows
from model.transformer import Transformer
from pipeline.attention.recording import recording
from pipeline.attention.records import (
    HeadShare,
    RelationName,
    RelationRecord,
    Relations,
    RelationSettings,
    RelationsRecord,
)
from pipeline.attention.translated import Pieces, by_word, pieces
from pipeline.corpora.embedded import GeneratedText, held_out
from pipeline.corpora.grammar import Derivation
from pipeline.corpora.grammar.references import Span, anaphora, verb_objects
from pipeline.evaluation.translation import load_checkpoint, with_heads
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint
from pipeline.text.segmentation import encode_lines

CONFIDENCE = 0.95


class _Case(NamedTuple):
    """Indices of two words, and all heads' attention from the first to all words but ⟨end⟩."""

    query: int
    key: int
    attention_XM: NDArray[np.float32]

    @property
    def hits(self) -> NDArray[np.bool_]:
        """True for heads that attend most to the related word."""
        hits_X: NDArray[np.bool_] = self.attention_XM.argmax(axis=1) == self.key
        return hits_X


def measure(context: Context, checkpoint: Checkpoint, corpus: GeneratedText, settings: RelationSettings) -> Relations:
    """Writes the shares for each relation, computed in float32 on `context.device`.

    Raises UserError if the model has no heads.
    """
    loaded, vocabulary = load_checkpoint(checkpoint.on_this_node(context.scratch).folder, context.device)
    model = with_heads(loaded, checkpoint.folder)
    cases_by_relation: dict[RelationName, list[_Case]] = {name: [] for name in get_args(RelationName)}
    for derivation in held_out(corpus.seed, "test"):
        wanted = [name for name, cases in cases_by_relation.items() if len(cases) < settings.cases]
        if not wanted:
            break
        pairs = [pair for pair in _pairs(derivation) if pair[0] in wanted]
        if pairs:
            side, attention_XWW = _attention(model, vocabulary, derivation.english)
            for name, *spans in pairs:
                query, key = (_word(vocabulary, derivation.english, side, span) for span in spans)
                if query is not None and key is not None:
                    cases_by_relation[name].append(_Case(query, key, attention_XWW[:, query, :-1]))
            found = sum(min(len(cases), settings.cases) for cases in cases_by_relation.values())
            context.progress(found, len(cases_by_relation) * settings.cases, "cases")
    records = tuple(
        _evaluate(name, cases[: settings.cases], model.config.n_heads) for name, cases in cases_by_relation.items()
    )
    return Relations(context.folder).write(RelationsRecord(relations=records))


def _pairs(derivation: Derivation) -> Iterator[tuple[RelationName, Span, Span]]:
    """Yields a sentence's related words, the attending one first."""
    if pair := anaphora(derivation):
        yield "pronoun to antecedent", *pair
    for pair in verb_objects(derivation):
        yield "verb to distant object", *pair


def _attention(
    model: Transformer, vocabulary: SentencePieceProcessor, sentence: str
) -> tuple[Pieces, NDArray[np.float32]]:
    """Returns a sentence's pieces, and the encoder's attention between its words: (X, W, W)."""
    (ids,) = encode_lines(vocabulary, [sentence])
    rows = Rows.padded(torch.tensor([ids], device=model.embedding.weight.device), torch.float32)
    with torch.inference_mode(), recording(model) as weights:
        model.encode(rows)
    side = pieces(vocabulary, ids)
    weights_XLL = torch.cat([weights_BHLL[0] for weights_BHLL in weights.encoder]).cpu().numpy()
    return side, by_word(weights_XLL, side, side)


def _word(vocabulary: SentencePieceProcessor, sentence: str, side: Pieces, span: Span) -> int | None:
    """Returns the index of the word that ends where `span` does; None if it shares its pieces with punctuation."""
    ends_bytes = [piece.end for piece in vocabulary.encode(sentence, return_type="proto").pieces]
    wanted = len(sentence[: span.end].encode())
    words = enumerate(side.words[:-1])  # without ⟨end⟩
    return next((number for number, (_, end) in words if ends_bytes[end - 1] == wanted), None)


def _evaluate(relation: RelationName, cases: Sequence[_Case], n_heads: int) -> RelationRecord:
    hits_CX = np.array([case.hits for case in cases])
    weights_CX = np.array([case.attention_XM[:, case.key] for case in cases])
    largest_CX = np.array([case.attention_XM.max(axis=1) for case in cases])
    chosen_on, rest = slice(0, None, 2), slice(1, None, 2)
    best = int(hits_CX[chosen_on].mean(axis=0).argmax())
    offsets = [case.key - case.query for case in cases]
    (offset, _), *_ = Counter(offsets[chosen_on]).most_common(1)
    n_hits, n_rest = int(hits_CX[rest, best].sum()), len(hits_CX[rest])
    interval = binomtest(n_hits, n_rest).proportion_ci(CONFIDENCE, method="wilson")
    return RelationRecord(
        relation=relation,
        cases=len(cases),
        chance=float(np.mean([1 / case.attention_XM.shape[1] for case in cases])),
        offset=offset,
        offset_share=float(np.mean([other == offset for other in offsets[rest]])),
        best_layer=best // n_heads + 1,
        best_head=best % n_heads + 1,
        best_share=n_hits / n_rest,
        best_interval=(interval.low, interval.high),
        heads=tuple(
            HeadShare(
                layer=number // n_heads + 1,
                head=number % n_heads + 1,
                share=float(hits_CX[:, number].mean()),
                weight=float(weights_CX[:, number].mean()),
                largest=float(largest_CX[:, number].mean()),
            )
            for number in range(hits_CX.shape[1])
        ),
    )
