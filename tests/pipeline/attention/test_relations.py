"""Shares of pronouns that a head joins to their antecedents, against a model whose attention is known."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.attention.relations import (
    KIND_OF,
    RelationSettings,
    _Attended,
    _Case,
    _figures,
    _pairs,
    measure,
)
from pipeline.corpora.embedded import EmbeddedSettings, generate
from pipeline.corpora.grammar import derive
from pipeline.errors import UserError
from pipeline.evaluation.translation import load_checkpoint
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint
from tests.support.tiny_checkpoint import make_checkpoint

CORPUS = EmbeddedSettings(target="de", train_pairs=60, dev_pairs=5, test_pairs=5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Random weights and a small vocabulary, so most words are several pieces."""
    folder = tmp_path_factory.mktemp("relations")
    (folder / "corpus").mkdir()
    return make_checkpoint(
        folder / "model", generate(Context(folder / "corpus"), CORPUS), byte_fallback=True, pieces=120
    )


def case(query: int, key: int, *rows: list[float]) -> _Case:
    return _Case(query, key, np.array(rows, np.float32))


def test_shares_of_known_attention() -> None:
    """The head and the offset are chosen on one half and counted on the other; chance is one over the words."""
    right, wrong = [0.1, 0.7, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]
    cases = [case(3, 1, wrong, right), case(4, 1, wrong, right), case(3, 1, right, right), case(3, 1, right, wrong)]
    figures = _figures("pronoun to antecedent", cases, n_heads=1)
    assert (figures.best_layer, figures.best_head) == (2, 1)
    assert figures.best_share == 0.5  # of the second and the fourth
    assert figures.best_interval == pytest.approx((0.0945, 0.9055), abs=1e-4)  # Wilson's of 1 in 2, at 95 %
    assert (figures.offset, figures.offset_share) == (-2, 0.5)
    assert figures.chance == pytest.approx(0.25)
    assert [head.share for head in figures.heads] == [0.5, 0.75]
    assert figures.heads[0].weight == pytest.approx((0.1 + 0.1 + 0.7 + 0.7) / 4)


def test_words_are_found_among_pieces(checkpoint: Checkpoint) -> None:
    """Of every relation the two words' pieces spell the words; what the decoder has not read is no candidate."""
    model, vocabulary = load_checkpoint(checkpoint.folder)
    seen = set()
    for number in range(120):
        derivation = derive(1, number)
        pairs = list(_pairs(derivation, "de"))
        if not pairs:
            continue
        attended = _Attended.of(model, vocabulary, derivation, "de", "cpu")
        for name, query, key in pairs:
            kind = KIND_OF[name]
            found = attended.case(kind, query, key)
            assert found is not None
            (query_text, key_text), (queries, keys) = attended.texts[kind], attended.sides[kind]
            skipped = int(kind == "decoder")
            assert queries.word(found.query) == query_text[slice(*query)]
            assert keys.word(found.key + skipped) == key_text[slice(*key)]
            if kind == "decoder":
                assert found.attention_XM.shape[1] == found.query
            elif kind == "cross":
                # What is written at once is the row of the word's first piece.
                row = queries.words[found.query][0]
                weights_HM = attended.weights.cross[0][0, :, row]
                begin, end = keys.words[found.key]
                expected = weights_HM[:, begin:end].sum(-1).numpy()
                np.testing.assert_allclose(found.attention_XM[:, found.key], expected, rtol=1e-5)
            seen.add(name)
    assert seen == set(KIND_OF)


def test_every_relation_is_measured_on_unseen_sentences(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The stage measures every relation on unseen sentences; random heads do about as well as chance."""
    figures = measure(Context(tmp_path), checkpoint, CORPUS, RelationSettings(cases=40)).load()
    assert [one.relation for one in figures.relations] == list(KIND_OF)
    for one in figures.relations:
        assert one.cases == 40
        assert len(one.heads) == 2
        assert 0.02 < one.chance < 0.5
        assert 0 <= one.best_share <= 0.6
        low, high = one.best_interval
        assert low <= one.best_share <= high
    assert figures.relations[0].offset < 0


def test_the_same_sentences_give_the_same_shares(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Nothing is drawn by chance."""
    shares = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shares.append(measure(Context(tmp_path / name), checkpoint, CORPUS, RelationSettings(cases=6)).load())
    assert shares[0] == shares[1]


def test_trees_have_no_pronouns(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A parser's corpus is refused in one line."""
    trees = EmbeddedSettings(target="trees")
    with pytest.raises(UserError, match="is of trees"):
        measure(Context(tmp_path), checkpoint, trees, RelationSettings())
