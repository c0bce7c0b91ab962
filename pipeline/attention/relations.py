"""Which heads join words that belong together: pronoun and antecedent, verb and distant object (paper, appendix).

    measure(Context(folder), checkpoint, embedded_settings, RelationSettings()).load().relations

The paper shows such heads for one sentence. Here the sentences are those of the embedded corpus that no model was
trained on, whose grammar knows which words belong together (`pipeline.corpora.grammar.references`). A case is a hit
where the word that a head attends to most is the right one. Beside it stand chance, one divided by the number of words,
and the best fixed offset ("three words to the left"). Head and offset are chosen on every other case, and their shares
are those of the rest.

Shapes: H heads, L query length, M key length.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from sentencepiece import SentencePieceProcessor

from model.batch import Batch
from model.config import BEGIN_ID
from model.transformer import Transformer
from pipeline.attention.figures import (
    KIND_OF,
    HeadShare,
    Kind,
    RelationFigures,
    RelationName,
    Relations,
    RelationSettings,
    RelationsFigures,
)
from pipeline.attention.recording import AttentionWeights, recording
from pipeline.attention.translated import Pieces, by_word, pieces
from pipeline.corpora.embedded import GeneratedText, held_out
from pipeline.corpora.grammar import Derivation
from pipeline.corpora.grammar.references import Span, anaphora, text_of, verb_objects
from pipeline.errors import UserError
from pipeline.evaluation.translation import load_checkpoint
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint
from pipeline.text.segmentation import encode_lines

CONFIDENCE = 0.95


class _Case(NamedTuple):
    """Two words of one sentence pair, by their numbers, with the heads' attention from the first to all words."""

    query: int
    key: int
    attention_XM: NDArray[np.float32]
    """One row a head, layer by layer; ⟨begin⟩ and ⟨end⟩ are left out."""

    @property
    def hits(self) -> NDArray[np.bool_]:
        """True for heads that attend most to the right word."""
        hits_X: NDArray[np.bool_] = self.attention_XM.argmax(axis=1) == self.key
        return hits_X


def measure(context: Context, checkpoint: Checkpoint, corpus: GeneratedText, settings: RelationSettings) -> Relations:
    """Writes the shares of each relation, computed in float32 on `context.device`.

    Raises UserError where the corpus is of trees, which have no pronouns to translate.
    """
    if corpus.target == "trees":
        raise UserError("the corpus is of trees; relations are measured on translations")
    model, vocabulary = load_checkpoint(checkpoint.folder, context.device)
    cases_by_relation: dict[RelationName, list[_Case]] = {name: [] for name in KIND_OF}
    for derivation in held_out(corpus.seed, "test"):
        wanted = [name for name, cases in cases_by_relation.items() if len(cases) < settings.cases]
        if not wanted:
            break
        pairs = [pair for pair in _pairs(derivation, corpus.target) if pair[0] in wanted]
        if pairs:
            attended = _Attended.of(model, vocabulary, derivation, corpus.target, context.device)
            for name, query, key in pairs:
                case = attended.case(KIND_OF[name], query, key)
                if case:
                    cases_by_relation[name].append(case)
            context.progress(
                sum(map(len, cases_by_relation.values())), len(cases_by_relation) * settings.cases, "cases"
            )
    relations = Relations(context.folder)
    figures = tuple(
        _figures(name, cases[: settings.cases], model.config.n_heads) for name, cases in cases_by_relation.items()
    )
    relations.write(RelationsFigures(relations=figures))
    return relations


def _pairs(derivation: Derivation, target: Literal["de", "fr"]) -> Iterator[tuple[RelationName, Span, Span]]:
    """Yields the related words of a sentence pair, each time the one that should attend first."""
    if pair := anaphora(derivation, target):
        yield "pronoun to antecedent", pair.source_pronoun, pair.source_antecedent
        if pair.target_pronoun:
            yield "target pronoun to source antecedent", pair.target_pronoun, pair.source_antecedent
            yield "target pronoun to its antecedent", pair.target_pronoun, pair.target_antecedent
    for verb, noun in verb_objects(derivation):
        yield "verb to distant object", verb, noun


@dataclass(frozen=True)
class _Attended:
    """A sentence pair with its weights, the decoder being given the translation."""

    texts: dict[Kind, tuple[str, str]]
    sides: dict[Kind, tuple[Pieces, Pieces]]
    ends: dict[str, list[int]]
    """Where each piece of a text ends, in bytes of UTF-8."""
    weights: AttentionWeights

    @classmethod
    def of(
        cls,
        model: Transformer,
        vocabulary: SentencePieceProcessor,
        derivation: Derivation,
        target: Literal["de", "fr"],
        device: str,
    ) -> "_Attended":
        texts = derivation.english, text_of(derivation, target)
        source, output = encode_lines(vocabulary, texts)
        batch = Batch.padded(torch.tensor([source]), torch.tensor([output]), model.embedding.weight.dtype).to(device)
        with torch.inference_mode(), recording(model) as weights:
            model(batch.source, batch.inputs)
        read = pieces(vocabulary, [BEGIN_ID, *output[:-1]])
        english, written = (pieces(vocabulary, ids) for ids in (source, output))
        ends = {text: [piece.end for piece in vocabulary.encode(text, return_type="proto").pieces] for text in texts}
        return cls(
            {"encoder": (texts[0], texts[0]), "decoder": (texts[1], texts[1]), "cross": (texts[1], texts[0])},
            {"encoder": (english, english), "decoder": (written, read), "cross": (written, english)},
            ends,
            weights,
        )

    def case(self, kind: Kind, query: Span, key: Span) -> _Case | None:
        """Returns the attention between two words; None if one shares its pieces with punctuation."""
        (query_text, key_text), (queries, keys) = self.texts[kind], self.sides[kind]
        from_word, to_word = (
            self._word(query_text, queries, query, 0),
            self._word(key_text, keys, key, kind == "decoder"),
        )
        if from_word is None or to_word is None:
            return None
        # A word is written in several steps; the first decides which word it will be.
        first, end = queries.words[from_word]
        rows = slice(first, end if kind == "encoder" else first + 1)
        weights_XLM = (
            torch.cat([recorded[0] for recorded in getattr(self.weights, kind)])[:, rows].float().cpu().numpy()
        )
        one_word = Pieces(queries.texts[rows], ((0, rows.stop - first),), ())
        attention_XM = by_word(weights_XLM, one_word, keys)[:, 0]
        # The decoder has read no more than the words before.
        seen = from_word + 1 if kind == "decoder" else len(keys.words) - 1
        skipped = int(kind == "decoder")
        return _Case(from_word, to_word - skipped, attention_XM[:, skipped:seen])

    def _word(self, text: str, side: Pieces, span: Span, skipped: int) -> int | None:
        """Returns the number of the word that ends where `span` does; `skipped` pieces stand before the text."""
        end_bytes = len(text[: span.end].encode())
        ends = self.ends[text]
        for number, (_, end) in enumerate(side.words):
            if skipped < end <= len(ends) + skipped and ends[end - 1 - skipped] == end_bytes:
                return number
        return None


def _figures(relation: RelationName, cases: Sequence[_Case], n_heads: int) -> RelationFigures:
    hits_CX = np.array([case.hits for case in cases])
    weights_CX = np.array([case.attention_XM[:, case.key] for case in cases])
    chosen_on, rest = slice(0, None, 2), slice(1, None, 2)
    best = int(hits_CX[chosen_on].mean(axis=0).argmax())
    offsets = [case.key - case.query for case in cases]
    (offset, _), *_ = Counter(offsets[chosen_on]).most_common(1)
    n_hits, n_rest = int(hits_CX[rest, best].sum()), len(hits_CX[rest])
    interval = binomtest(n_hits, n_rest).proportion_ci(CONFIDENCE, method="wilson")
    return RelationFigures(
        relation=relation,
        kind=KIND_OF[relation],
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
            )
            for number in range(hits_CX.shape[1])
        ),
    )
