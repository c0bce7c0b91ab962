"""pipeline.attention: recording changes nothing, translations with attention are plain ones, pieces form words."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.batch import shift_right
from model.config import END_ID, PAD_ID, TransformerConfig
from model.transformer import Transformer
from pipeline.artifacts import Checkpoint, Corpus
from pipeline.attention.recording import KINDS, attentions, recording
from pipeline.attention.translated import BEGIN, END, AttentionTranslator, Pieces, by_word, pieces
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.text.vocabulary import load
from tests.support.batches import hidden_of
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint

CONFIG = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=5, dropout=0.0)
SOURCE_BS = torch.tensor([[5, 9, 7, 4, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID]])
INPUTS_BT = shift_right(torch.tensor([[6, 8, END_ID], [7, 12, 4]]))
SETTINGS = DecodingSettings(dtype="float32", max_extra_tokens=8)


def test_recording_changes_no_bit_and_leaves_nothing_behind() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG).eval()
    with torch.no_grad():
        plain = hidden_of(model, SOURCE_BS, INPUTS_BT)
        with recording(model):
            assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
        assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
    assert all(one.function.on_weights is None for kind in KINDS for one in attentions(model, kind))


def test_it_is_the_translation_and_its_weights_fit_the_pieces(checkpoint: Checkpoint) -> None:
    """Text and score equal the translator's, and each kind of weights has a row per query and a column per key."""
    translator = AttentionTranslator(checkpoint.folder, SETTINGS)
    expected = Translator(checkpoint.folder, SETTINGS)
    for sentence in (SENTENCES[0], SENTENCES[-1]):
        attended = translator.attend(f"\t {sentence.replace(' ', '  ')} \r")
        (translation,) = expected.translations([sentence])
        assert attended.sentence == sentence
        assert (attended.translation, attended.score) == (translation.text, translation.score)
        assert attended.source.texts[-1] == attended.written.texts[-1] == END
        assert attended.read.texts == (BEGIN, *attended.written.texts[:-1])
        for kind, weights in attended.weights.items():
            queries, keys = attended.sides(kind)
            assert weights.shape == (1, 2, len(queries.texts), len(keys.texts))
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        assert (np.triu(attended.weights["decoder"], 1) == 0).all()


def test_what_cannot_be_drawn_is_refused(checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path) -> None:
    translator = AttentionTranslator(checkpoint.folder, SETTINGS)
    with pytest.raises(UserError, match="empty"):
        translator.attend("  ")
    with pytest.raises(UserError, match="more than the 256 that can be drawn"):
        translator.attend("dog " * 300)
    learned = make_checkpoint(tmp_path / "learned", corpus, positions="learned", max_positions=12)
    with pytest.raises(UserError, match="more than the 12 that can be drawn"):
        AttentionTranslator(learned.folder, SETTINGS).attend(SENTENCES[2])


def test_pieces_are_grouped_into_words_and_punctuation(checkpoint: Checkpoint) -> None:
    """A word is all of its pieces. Punctuation attached to words and the end mark are words of their own.

    A character that the vocabulary lacks is shown as in the sentence.
    """
    vocabulary = load(checkpoint.folder / "joint.model")
    ids = vocabulary.encode("The standing man. A shirt", add_eos=True)
    found = pieces(vocabulary, ids)
    words = [found.word(number) for number in range(len(found.words))]
    assert words == ["The", "standing", "man", ".", "A", "shirt", END]
    assert max(end - begin for begin, end in found.words) > 1
    assert found.separators == (len(ids) - 1,)
    unknown = "A 犬.A man"
    found = pieces(vocabulary, vocabulary.encode(unknown, add_eos=True), unknown)
    assert [found.word(number) for number in range(len(found.words))] == ["A", "犬", ".", "A", "man", END]


def test_weights_between_words_add_keys_and_average_queries() -> None:
    queries = Pieces(("a", "b", "c"), ((0, 2), (2, 3)), ())
    keys = Pieces(("x", "y", "z"), ((0, 1), (1, 3)), ())
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0, 1, 0]], np.float32)
    np.testing.assert_allclose(by_word(weights, queries, keys), [[0.3, 0.7], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(by_word(np.stack([weights] * 2), queries, keys).shape, (2, 2, 2))
